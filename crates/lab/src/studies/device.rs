//! What the modelled devices of a study take, in words: their parameters are assumptions of it.

use std::time::Duration;

use quire_testkit::Model;

/// What a model's operations take, as an assumption; none for the machine's own disk.
pub(super) fn of_model(name: &str) -> Option<String> {
    Model::named(name).map(|model| format!("the model {name}: {}", in_words(model)))
}

/// What a model's operations take.
fn in_words(m: Model) -> String {
    let us = |time: Duration| format!("{} us", time.as_micros());
    let mut words = Vec::new();
    if let Some(head) = m.head {
        words.push(format!("a move of the head to the next track takes {}", us(head.near)));
        words.push(format!("over a third of the disk {}", us(head.seek)));
        words.push(format!("a turn {}, a track has {} KiB", us(head.turn), head.track >> 10));
    }
    if !m.write.is_zero() || m.head.is_none() {
        words.push(format!("a write takes {}", us(m.write)));
    }
    if m.write_ns_per_kib > 0 {
        words.push(format!("a KiB {} ns", m.write_ns_per_kib));
    }
    if !m.scattered.is_zero() {
        words.push(format!("a write elsewhere {} more", us(m.scattered)));
    }
    words.push(format!("a flush {}", us(m.flush)));
    if m.flush_ns_per_dirty_kib > 0 {
        words.push(format!("and {} ns to each KiB written since the last", m.flush_ns_per_dirty_kib));
    }
    words.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_model_is_described_by_what_its_operations_take() {
        let of = |name| in_words(Model::named(name).unwrap());
        assert_eq!(
            of("samsung840,flush=4000"),
            "a write takes 50 us, a KiB 7700 ns, a flush 4000 us, and 1000 ns to each KiB written since the last"
        );
        assert!(of("hdd15k").contains("a turn 4000 us") && of("hdd15k").ends_with("a flush 0 us"), "{}", of("hdd15k"));
        assert!(of("intel311").contains("a write elsewhere 80 us more"));
    }

    #[test]
    fn the_machines_own_disk_has_no_parameters() {
        assert_eq!(of_model("own"), None);
        assert!(of_model("samsung840,flush=4000").unwrap().contains("a flush 4000 us"));
    }
}
