//! Who is measured when: rounds of all competitors, each begun by another one.

/// The turns of `rounds` rounds of `count` competitors: the round and the competitor. Each round begins with another
/// one, because the machine may get slower or faster meanwhile; few rounds begin far apart.
pub fn turns(rounds: usize, count: usize) -> impl Iterator<Item = (usize, usize)> {
    let step = count.checked_div(rounds).unwrap_or(0).max(1);
    (0..rounds).flat_map(move |round| (0..count).map(move |turn| (round, (turn + round * step) % count)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_round_has_every_competitor_once_and_begins_with_another() {
        let all: Vec<(usize, usize)> = turns(3, 10).collect();
        for round in 0..3 {
            let mut of: Vec<usize> = all.iter().filter(|(r, _)| *r == round).map(|(_, who)| *who).collect();
            assert_eq!(of[0], [0, 3, 6][round]);
            of.sort_unstable();
            assert_eq!(of, (0..10).collect::<Vec<_>>());
        }
    }

    #[test]
    fn two_competitors_take_the_first_turn_by_turns_however_many_rounds_there_are() {
        let first: Vec<usize> = turns(5, 2).step_by(2).map(|(_, who)| who).collect();
        assert_eq!(first, [0, 1, 0, 1, 0]);
        assert_eq!(turns(0, 2).count() + turns(2, 0).count(), 0);
    }
}
