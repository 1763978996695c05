//! Random values as the specification draws them: NURand (2.1.6), last names (4.3.2.3), strings (4.3.2.2).

use quire_testkit::rng::Rng;

/// The constant of NURand for last names differs between population and run (2.1.6.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Phase {
    Load,
    Run,
}

const SYLLABLES: [&str; 10] = ["BAR", "OUGHT", "ABLE", "PRI", "PRES", "ESE", "ANTI", "CALLY", "ATION", "EING"];

/// A source of values.
#[derive(Debug)]
pub(super) struct Draw {
    rng: Rng,
    last_name: u32,
    customer: u32,
    item: u32,
}

impl Draw {
    pub(super) fn new(seed: u64, phase: Phase) -> Self {
        // The difference of the two constants is between 65 and 119, and neither 96 nor 112.
        let last_name = match phase {
            Phase::Load => 157,
            Phase::Run => 223,
        };
        Self { rng: Rng::from_parts(&[seed, 0x7CC]), last_name, customer: 259, item: 7911 }
    }

    /// A number in `low..=high`.
    pub(super) fn within(&mut self, low: u32, high: u32) -> u32 {
        low + u32::try_from(self.rng.below(u64::from(high - low) + 1)).expect("below a 32-bit bound")
    }

    /// True in `percent` of all cases.
    pub(super) fn percent(&mut self, percent: u32) -> bool {
        self.within(1, 100) <= percent
    }

    fn nurand(&mut self, a: u32, c: u32, low: u32, high: u32) -> u32 {
        ((self.within(0, a) | self.within(low, high)) + c) % (high - low + 1) + low
    }

    /// A customer's number among `customers`.
    pub(super) fn customer(&mut self, customers: u32) -> u32 {
        self.nurand(1023, self.customer, 1, customers)
    }

    /// An item's number among `items`.
    pub(super) fn item(&mut self, items: u32) -> u32 {
        self.nurand(8191, self.item, 1, items)
    }

    /// A customer's last name; in a district of fewer than 1000 customers one of the names that it has.
    pub(super) fn last_name(&mut self, customers: u32) -> String {
        last_name(self.nurand(255, self.last_name, 0, customers.min(1000) - 1))
    }

    /// Letters and digits, `low..=high` of them.
    pub(super) fn text(&mut self, low: u32, high: u32) -> String {
        const FROM: &[u8] = b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789";
        (0..self.within(low, high)).map(|_| char::from(FROM[self.rng.index(FROM.len())])).collect()
    }

    /// Digits, `n` of them.
    pub(super) fn digits(&mut self, n: u32) -> String {
        (0..n).map(|_| char::from(b'0' + u8::try_from(self.within(0, 9)).expect("a digit"))).collect()
    }

    /// 26 to 50 characters, with `ORIGINAL` somewhere in a tenth of them (4.3.3.1).
    pub(super) fn data(&mut self) -> String {
        let mut text = self.text(26, 50);
        if self.percent(10) {
            let at = self.rng.index(text.len() - 8);
            text.replace_range(at..at + 8, "ORIGINAL");
        }
        text
    }

    /// Street, street, city, state and zip (4.3.2.7).
    pub(super) fn address(&mut self) -> [String; 5] {
        [self.text(10, 20), self.text(10, 20), self.text(10, 20), self.text(2, 2), self.digits(4) + "11111"]
    }

    /// The numbers `1..=n` in random order.
    pub(super) fn permutation(&mut self, n: u32) -> Vec<u32> {
        let mut all: Vec<u32> = (1..=n).collect();
        for i in (1..all.len()).rev() {
            all.swap(i, self.rng.index(i + 1));
        }
        all
    }
}

/// The name of a number below 1000: a syllable for each digit.
pub(super) fn last_name(n: u32) -> String {
    let syllable = |digit: u32| SYLLABLES[usize::try_from(digit % 10).expect("a digit")];
    [n / 100, n / 10, n].map(syllable).concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_numbers_are_the_specifications() {
        assert_eq!(last_name(371), "PRICALLYOUGHT");
        let mut draw = Draw::new(1, Phase::Run);
        let items: Vec<u32> = (0..20_000).map(|_| draw.item(100_000)).collect();
        assert!(items.iter().all(|i| (1..=100_000).contains(i)));
        // Not uniform: an or with 13 random bits favours numbers with many ones among them.
        let most = items.iter().filter(|i| (**i - 1).wrapping_sub(7911) & 0xFFF == 0xFFF).count();
        assert!(most > 20_000 / 4096 * 3, "{most}");
        let mut all = draw.permutation(50);
        all.sort_unstable();
        assert_eq!(all, (1..=50).collect::<Vec<_>>());
    }
}
