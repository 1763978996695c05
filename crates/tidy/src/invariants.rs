//! docs/invariants.md: what each invariant breaks without (the last column) is a test that exists, or a mutant that a
//! test goes over.

use crate::names::Defined;
use std::path::Path;

/// Rows whose last column names no test, or one that does not exist. A mutant counts if `mutants`, the source that
/// lists them, has it in a list (`Mutant::Name`).
#[must_use]
pub(crate) fn untested(path: &Path, page: &str, defined: &Defined, mutants: &str) -> Vec<String> {
    let mut faults = Vec::new();
    for (number, line) in page.lines().enumerate().filter(|(_, l)| l.starts_with("| ") && !l.starts_with("| |")) {
        let place = format!("{}:{}", path.display(), number + 1);
        let last = line.trim_end_matches('|').rsplit(" | ").next().unwrap_or_default();
        let mut names = last.split('`').skip(1).step_by(2).peekable();
        if names.peek().is_none() {
            faults.push(format!("{place}: no test"));
        }
        for name in names {
            let is_mutant = name.starts_with(|c: char| c.is_ascii_uppercase());
            let is_there = if is_mutant { lists(mutants, name) } else { exists(name, defined) };
            if !is_there {
                faults.push(format!("{place}: `{name}` is no test, and no mutant of a list"));
            }
        }
    }
    faults
}

/// True for a test, for its module, and for `module::*` or `name_*` of which there is at least one.
fn exists(name: &str, defined: &Defined) -> bool {
    let (module, test) = name.split_once("::").unwrap_or((name, name));
    match test.strip_suffix('*') {
        Some("") => defined.knows(module),
        Some(start) => defined.has_one_with(start),
        None => defined.knows(test),
    }
}

/// True if a list of the source has this mutant.
fn lists(source: &str, mutant: &str) -> bool {
    source
        .split(|c: char| !c.is_ascii_alphanumeric() && c != ':')
        .any(|word| word.strip_prefix("Mutant::") == Some(mutant))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn faults(last: &str) -> Vec<String> {
        let mut defined = Defined::default();
        defined.add("gate");
        defined.add_file("mod lists { fn a_test_of_lists() {} } enum Mutant { Listed, ListedNot }");
        let page = format!("| | must hold | upheld by | breaks without it |\n|---|\n| M1 | a | `b` | {last} |");
        untested(Path::new("page.md"), &page, &defined, "enum Mutant { Listed, ListedNot } [Mutant::Listed]")
    }

    #[test]
    fn a_test_and_a_mutant_that_exist_are_no_fault() {
        assert_eq!(faults("`gate`: `a_test_of_lists`, `lists::a_test_*`, `gate::*`; mutant `Listed`"), [""; 0]);
    }

    #[test]
    fn a_row_without_a_test_is_a_fault() {
        assert_eq!(faults("nothing"), ["page.md:3: no test"]);
        assert_eq!(faults("`gone_*`").len(), 1);
        assert_eq!(faults("`lists::gone`").len(), 1);
    }

    #[test]
    fn a_mutant_that_no_list_has_is_a_fault() {
        assert_eq!(faults("`ListedNot`"), ["page.md:3: `ListedNot` is no test, and no mutant of a list"]);
    }
}
