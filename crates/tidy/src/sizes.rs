//! Sizes: lines of a file and of a function, methods of a type.

use crate::model::{Crate, attributes, is_test};
use std::collections::BTreeMap;
use std::path::Path;
use syn::spanned::Spanned;
use syn::visit::{self, Visit};

/// Lines of a source file.
const MAX_FILE_LINES: usize = 500;
/// Lines of a function, from its signature to its closing brace; tests and tables do not count.
const MAX_FUNCTION_LINES: usize = 60;
/// Inherent methods of a type, wherever its `impl` blocks stand.
const MAX_METHODS: usize = 40;
/// A match is a table if none of its arms is longer, in lines.
const MAX_TABLE_ARM_LINES: usize = 4;

/// A file that holds more than one idea.
#[must_use]
pub(crate) fn file(path: &Path, text: &str) -> Option<String> {
    let lines = text.lines().count();
    (lines > MAX_FILE_LINES).then(|| format!("{}: {lines} lines; at most {MAX_FILE_LINES}", path.display()))
}

/// Functions that do not fit a screen, and types with too many methods.
#[must_use]
pub(crate) fn functions(krate: &Crate) -> Vec<String> {
    let mut faults = Vec::new();
    let mut methods: BTreeMap<String, usize> = BTreeMap::new();
    for source in &krate.files {
        let mut sizes = Sizes { path: &source.path, faults: &mut faults, methods: &mut methods };
        source.syntax.items.iter().filter(|i| !is_test(attributes(i))).for_each(|i| sizes.visit_item(i));
    }
    let crowded = methods.into_iter().filter(|(_, n)| *n > MAX_METHODS);
    faults.extend(crowded.map(|(t, n)| format!("{}: type {t} has {n} methods; at most {MAX_METHODS}", krate.name)));
    faults
}

struct Sizes<'a> {
    path: &'a Path,
    faults: &'a mut Vec<String>,
    methods: &'a mut BTreeMap<String, usize>,
}

impl Sizes<'_> {
    fn function(&mut self, name: &syn::Ident, attrs: &[syn::Attribute], whole: &impl Spanned, body: &syn::Block) {
        if is_test(attrs) {
            return;
        }
        let start = name.span().start().line;
        let lines = whole.span().end().line - start + 1;
        let mut tables = Tables(0);
        tables.visit_block(body);
        let counted = lines - tables.0;
        if counted > MAX_FUNCTION_LINES {
            let place = self.path.display();
            self.faults.push(format!("{place}:{start}: fn {name} has {counted} lines; at most {MAX_FUNCTION_LINES}"));
        }
    }
}

impl<'a> Visit<'a> for Sizes<'_> {
    fn visit_item_mod(&mut self, m: &'a syn::ItemMod) {
        if !is_test(&m.attrs) {
            visit::visit_item_mod(self, m);
        }
    }

    fn visit_item_fn(&mut self, f: &'a syn::ItemFn) {
        self.function(&f.sig.ident, &f.attrs, f, &f.block);
    }

    fn visit_item_impl(&mut self, i: &'a syn::ItemImpl) {
        if let (None, syn::Type::Path(p)) = (&i.trait_, &*i.self_ty)
            && let Some(last) = p.path.segments.last()
            && !is_test(&i.attrs)
        {
            let fns = i.items.iter().filter(|i| matches!(i, syn::ImplItem::Fn(f) if !is_test(&f.attrs))).count();
            *self.methods.entry(last.ident.to_string()).or_default() += fns;
        }
        visit::visit_item_impl(self, i);
    }

    fn visit_impl_item_fn(&mut self, f: &'a syn::ImplItemFn) {
        self.function(&f.sig.ident, &f.attrs, f, &f.block);
    }
}

/// Counts the lines of matches that are tables.
struct Tables(usize);

impl<'a> Visit<'a> for Tables {
    fn visit_expr_match(&mut self, m: &'a syn::ExprMatch) {
        let lines = |s: &dyn Fn() -> proc_macro2::Span| s().end().line - s().start().line + 1;
        if m.arms.iter().all(|a| lines(&|| a.span()) <= MAX_TABLE_ARM_LINES) {
            self.0 += lines(&|| m.span()) - 1;
        } else {
            visit::visit_expr_match(self, m);
        }
    }
}
