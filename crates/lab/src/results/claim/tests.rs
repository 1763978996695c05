use super::*;

const HELD: Verdict = Verdict::Held;
const DIFFERS: Verdict = Verdict::Differs;
const NOT: Verdict = Verdict::NotHeld;

fn verdicts<const N: usize>(claims: [Claim; N]) -> [Verdict; N] {
    claims.map(|c| c.verdict)
}

#[test]
fn on_its_side_is_held_however_far_and_beyond_it_is_not() {
    let least = |m| Claim::at_least("figure 7", "at least", "a / b", m, "5.1");
    assert_eq!(verdicts([least(5.1), least(5.0), least(10.2), least(51.0)]), [HELD, NOT, HELD, HELD]);
    assert_eq!(verdicts([least(5.049), least(5.051), least(4.9)]), [NOT, HELD, NOT], "printed as 5.0, 5.1, 4.9");
    let words = |m| Claim::at_least("section 3", "several", "a / b", m, 3.0);
    assert_eq!(verdicts([words(2.99), words(3.0), words(3.1).printed(3.2)]), [NOT, HELD, HELD], "no rounding");
    let most = |m| Claim::at_most("table 1", "fewer", "a", m, 2.0);
    assert_eq!(verdicts([most(2.0), most(2.1), most(0.0)]), [HELD, NOT, HELD]);
    let printed = |m| Claim::at_most("table 1", "at most", "a", m, "2");
    assert_eq!(
        verdicts([printed(0.1), printed(2.4), printed(f64::NAN).because_within(0.0..=9.0, "so")]),
        [HELD, HELD, NOT]
    );
}

#[test]
fn a_number_is_a_tenth_on_either_side_or_what_is_printed_alike() {
    let cell = |m, printed: &str| Claim::about("table 1", "a cell", "a", m, (printed, ABOUT)).verdict;
    assert_eq!([cell(22.1, "33.7"), cell(31.0, "33.7"), cell(37.1, "33.7")], [NOT, HELD, NOT]);
    assert_eq!([cell(0.0034, "0.003"), cell(0.0036, "0.003"), cell(0.0014, "0.003")], [HELD, NOT, NOT]);
    assert_eq!([cell(0.4, "0"), cell(0.6, "0")], [HELD, NOT], "printed as 0");
}

#[test]
fn per_cent_are_a_tenth_of_them_on_either_side() {
    let slower = |m| Claim::by_percent("figure 2", "73 % slower", "a / b", m, (73.0, "1.73")).verdict;
    assert_eq!([slower(1.65), slower(1.66), slower(1.80), slower(1.81)], [NOT, HELD, HELD, NOT]);
    let faster = |m| Claim::by_percent("figure 2", "4 % faster", "a / b", m, (-4.0, "0.96")).verdict;
    assert_eq!([faster(0.9), faster(0.957), faster(0.9649), faster(0.97)], [NOT, HELD, HELD, NOT]);
}

#[test]
fn a_cause_that_is_not_measured_explains_nothing() {
    let claim = Claim::about("figure 5a", "738 a second", "a", 5974.0, ("738", ABOUT)).supposedly("nothing computes");
    let why = "the cause is supposed, and not measured: nothing computes";
    assert_eq!((claim.verdict, claim.cause()), (NOT, Some(why)));
    assert_eq!((claim.cause_in_full().as_deref(), claim.shared_cause().as_deref()), (Some(why), Some(why)));
}

#[test]
fn a_tie_is_neither_above_nor_below() {
    let above = |m| Claim::above("figure 5a", "faster", "a / b", m, 1.0);
    let below = |m| Claim::below("figure 5a", "slower", "a / b", m, 1.0);
    assert_eq!(verdicts([above(1.0), above(1.004), above(1.006)]), [NOT, NOT, HELD]);
    assert_eq!(verdicts([below(1.0), below(0.996), below(0.994)]), [NOT, NOT, HELD]);
    assert_eq!(above(1.0).because_within(1.0..=1.0, "the same bytes").verdict, DIFFERS);
    assert_eq!((above(1.0).bound(), below(1.0).bound()), ("above 1.00".into(), "below 1.00".into()));
}

#[test]
fn an_equality_has_two_sides() {
    let about = |m| Claim::about("table 1", "99.2 %", "a", m, ("99.2", 0.05));
    assert_eq!(verdicts([about(94.0), about(95.0), about(104.0), about(105.0)]), [NOT, HELD, HELD, NOT]);
    assert_eq!((about(99.0).paper_shown(), about(99.0).bound()), (Some("99.2".into()), "94.2 to 104".into()));
    let almost = |m| Claim::between("figure 4", "almost ten times", "a", m, (8.0, 10.0));
    assert_eq!(verdicts([almost(7.9), almost(8.0), almost(10.0), almost(500.0)]), [NOT, HELD, HELD, NOT]);
}

#[test]
fn a_cause_explains_its_range_and_no_more() {
    let least = |m| Claim::at_least("figure 7", "faster", "a / b", m, "5.1");
    let within = |m| least(m).because_within(3.0..=5.0, "so");
    assert_eq!(verdicts([within(3.0), within(2.9), within(5.2)]), [DIFFERS, NOT, HELD]);
    assert_eq!(within(2.9).cause(), Some("the known cause does not explain so much"));
    assert_eq!(within(3.0).cause(), Some("so (which explains 3.00 to 5.00)"));
    assert_eq!(least(3.0).because_within(f64::NAN..=5.0, "so").verdict, NOT, "no range");
}

#[test]
fn a_claim_that_a_cause_does_not_explain_says_what_is_known_of_it() {
    let within = |m| Claim::at_least("figure 7", "faster", "a / b", m, "5.1").because_within(3.0..=5.0, "so");
    let full = |m| within(m).cause_in_full();
    let not = "the known cause does not explain so much: so (which explains 3.00 to 5.00)";
    assert_eq!([full(2.0).as_deref(), full(3.0).as_deref()], [Some(not), Some("so (which explains 3.00 to 5.00)")]);
    assert_eq!(full(6.0), None);
}

#[test]
fn a_printed_number_keeps_its_places() {
    let claim = |m| Claim::at_least("figure 7", "three times", "a / b", m, "3.0");
    assert_eq!(verdicts([claim(2.949), claim(2.951)]), [NOT, HELD], "with places of 3, 2.5 would be the same");
    assert_eq!((claim(3.0).bound(), claim(3.0).paper), ("at least 3.0".into(), Some(3.0)));
}

#[test]
fn a_line_says_what_was_measured_and_why_it_differs() {
    let claim = Claim::at_least("figure 7", "up to 5.1 times", "djfs / ordered", 3.2, 5.1)
        .because_within(3.0..=5.0, "the model");
    assert_eq!(
        claim.to_string(),
        "differs: up to 5.1 times (figure 7): djfs / ordered: 3.20, at least 5.10; the model (which explains 3.00 to 5.00)"
    );
    let ours = Claim::at_most("on mounts", "no slower", "a / b", 0.9, 1.0).ours();
    assert_eq!(ours.to_string(), "held: no slower (Quire's aim, on mounts): a / b: 0.900, at most 1.00");
}

#[test]
fn a_claim_of_an_older_result_loads() {
    let old = r#"{"at": "figure 1", "says": "faster", "what": "a / b", "measured": 2.0, "side": "at-least",
        "limit": 1.0, "why": "so", "verdict": "held"}"#;
    let claim: Claim = serde_json::from_str(old).unwrap();
    assert_eq!((claim.verdict, claim.ours, claim.explains, claim.upper), (HELD, false, None, None));
    let differs = Claim { verdict: DIFFERS, ..claim.clone() };
    assert_eq!(differs.cause(), Some("so"), "its cause has no range");
    let stronger = Claim { explains: Some([0.0, 1.0]), ..differs };
    assert_eq!(stronger.cause(), Some("stronger here than printed"), "what a cause does not explain is not its");
    let same: Claim = serde_json::from_str(&serde_json::to_string(&claim.ours()).unwrap()).unwrap();
    assert!(same.ours && same.why.as_deref() == Some("so"));
}
