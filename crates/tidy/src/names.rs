//! Names of code in documents: what a page calls by a path, such as `Journal::commit`, must be defined somewhere.
//!
//! In the section *One write* of docs/design.md a single word in backticks is such a name, too.

use std::collections::BTreeSet;
use std::path::Path;
use syn::visit::{self, Visit};

/// The section whose single words are names of functions.
const WALK: &str = "## One write";

/// Names of the standard library that pages may use.
const FOREIGN: [&str; 4] = ["Arc", "make_mut", "Drop", "crate"];

/// Everything that source files define: functions, types, variants, fields, constants, modules.
#[derive(Default)]
pub(crate) struct Defined(BTreeSet<String>);

impl Defined {
    /// Adds a name, as that of a crate.
    pub(crate) fn add(&mut self, name: &str) {
        self.0.insert(name.to_owned());
    }

    /// Adds what a source file defines. A file that does not parse defines nothing: the compiler says why.
    pub(crate) fn add_file(&mut self, source: &str) {
        if let Ok(file) = syn::parse_file(source) {
            self.visit_file(&file);
        }
    }

    /// True if a source defines this name, or the standard library.
    pub(crate) fn knows(&self, name: &str) -> bool {
        self.0.contains(name) || FOREIGN.contains(&name)
    }

    /// True if a source defines a name with this start.
    pub(crate) fn has_one_with(&self, start: &str) -> bool {
        self.0.range(start.to_owned()..).next().is_some_and(|name| name.starts_with(start))
    }
}

/// Adds the identifiers of items, then what is inside of them.
macro_rules! define {
    ($($visit:ident($type:ty): $($field:ident).+),+ $(,)?) => {
        impl<'a> Visit<'a> for Defined {
            $(fn $visit(&mut self, item: &'a $type) {
                self.add(&item.$($field).+.to_string());
                visit::$visit(self, item);
            })+

            fn visit_field(&mut self, field: &'a syn::Field) {
                if let Some(name) = &field.ident {
                    self.add(&name.to_string());
                }
                visit::visit_field(self, field);
            }

            /// Functions that a macro is given, as the tests of `proptest!` are.
            fn visit_macro(&mut self, call: &'a syn::Macro) {
                let tokens = call.tokens.to_string();
                let words: Vec<&str> = tokens.split_whitespace().collect();
                words.windows(2).filter(|w| w[0] == "fn").for_each(|w| self.add(w[1].split('(').next().unwrap_or(w[1])));
            }
        }
    };
}

define! {
    visit_item_fn(syn::ItemFn): sig.ident,
    visit_impl_item_fn(syn::ImplItemFn): sig.ident,
    visit_trait_item_fn(syn::TraitItemFn): sig.ident,
    visit_item_struct(syn::ItemStruct): ident,
    visit_item_enum(syn::ItemEnum): ident,
    visit_variant(syn::Variant): ident,
    visit_item_trait(syn::ItemTrait): ident,
    visit_item_type(syn::ItemType): ident,
    visit_item_const(syn::ItemConst): ident,
    visit_impl_item_const(syn::ImplItemConst): ident,
    visit_item_static(syn::ItemStatic): ident,
    visit_item_mod(syn::ItemMod): ident,
}

/// The names of a page that nothing defines.
#[must_use]
pub(crate) fn unknown(path: &Path, page: &str, defined: &Defined) -> Vec<String> {
    let mut faults = Vec::new();
    let mut in_walk = false;
    for (number, line) in page.lines().enumerate() {
        if line.starts_with("## ") {
            in_walk = line.starts_with(WALK);
        }
        for span in line.split('`').skip(1).step_by(2) {
            let missing = parts(span).filter(|p| p.len() > 1 || in_walk);
            for name in missing.into_iter().flatten().filter(|name| !defined.knows(name)) {
                faults.push(format!("{}:{}: `{span}`: {name} does not exist", path.display(), number + 1));
            }
        }
    }
    faults
}

/// The names in `a::b`, `a::{b, c}` or `a::b(...)`; `None` if it is something else.
fn parts(span: &str) -> Option<Vec<&str>> {
    let path = span.split_once('(').map_or(span, |(path, _)| path);
    let (stem, last) = match path.split_once("::{") {
        Some((stem, rest)) => (stem, rest.strip_suffix('}')?),
        None => (path, ""),
    };
    let names: Vec<&str> = stem.split("::").chain(last.split(", ").filter(|n| !n.is_empty())).collect();
    let is_name = |n: &&str| {
        n.starts_with(|c: char| c.is_ascii_alphabetic()) && n.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
    };
    names.iter().all(is_name).then_some(names)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn faults(page: &str) -> Vec<String> {
        let mut defined = Defined::default();
        defined.add("journal");
        defined.add_file("pub struct Journal; impl Journal { fn commit(&self) {} fn stats(&self) {} } mod log {}");
        unknown(Path::new("page.md"), page, &defined)
    }

    #[test]
    fn a_function_that_does_not_exist_is_found_with_its_line() {
        assert!(
            faults("`Journal::commit`, `journal::log`, `Journal::{commit, stats}`, `Journal::commit(tid)`").is_empty()
        );
        assert_eq!(faults("first\n`Journal::comit`"), ["page.md:2: `Journal::comit`: comit does not exist"]);
        assert_eq!(faults("`Journal::{commit, gone}`").len(), 1);
    }

    #[test]
    fn a_single_word_counts_in_the_walk_of_one_write_only() {
        assert!(faults("`chattr`, `data=auto`").is_empty());
        assert_eq!(faults("## One write\n`commit`, `gone`, `data=auto`\n## Next\n`gone`").len(), 1);
    }
}
