//! Which file of a crate needs which: an arrow leads from a file to each file that defines something it names.
//!
//! A re-export (`pub use`) is not an arrow of the file that holds it: whoever names the re-exported item depends on
//! the file that defines the item. A method that only one type of the crate has counts as a name of its file, so
//! that an `impl` block elsewhere does not hide an arrow.

use crate::model::{Crate, FileId, ModuleId, Name, attributes, is_test};
use proc_macro2::{TokenStream, TokenTree};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use syn::visit::{self, Visit};
use syn::{ImplItem, Item, UseTree, Visibility};

/// An alias may lead to an alias; more steps than this are a cycle of re-exports.
const MAX_ALIASES: usize = 32;

/// Method names of the standard library that a type of ours may have, too: a call says nothing about our file.
const STD_METHODS: &str = include_str!("std_methods.txt");

/// Arrows by file, each with the first name that makes it.
pub(crate) type Arrows = BTreeMap<FileId, BTreeMap<FileId, String>>;

/// All arrows of a crate. `below`: method names of the crates that it depends on, which say nothing about its own
/// files.
#[must_use]
pub(crate) fn arrows(krate: &Crate, below: &BTreeSet<String>) -> Arrows {
    let methods = unique_methods(krate, below);
    let mut out = Arrows::new();
    for (id, module) in krate.modules.iter().enumerate() {
        let source = &krate.files[module.file];
        let items = if module.parent.is_none_or(|p| krate.modules[p].file != module.file) {
            &source.syntax.items[..]
        } else {
            match inline_items(krate, id) {
                Some(items) => items,
                None => continue,
            }
        };
        let mut finder = Finder { krate, module: id, methods: &methods, found: BTreeMap::new() };
        items.iter().filter(|i| !is_test(attributes(i))).for_each(|i| finder.visit_item(i));
        for (to, name) in finder.found {
            if to != module.file {
                out.entry(module.file).or_default().entry(to).or_insert(name);
            }
        }
    }
    out
}

/// The items of a module that stands inside its parent's file.
fn inline_items(krate: &Crate, id: ModuleId) -> Option<&[Item]> {
    let module = &krate.modules[id];
    let mut items = &krate.files[module.file].syntax.items[..];
    // The names from the file's own module down to this one.
    let mut owner = id;
    let mut names = Vec::new();
    while let Some(parent) = krate.modules[owner].parent.filter(|p| krate.modules[*p].file == module.file) {
        names.push(krate.modules[owner].path.last()?.clone());
        owner = parent;
    }
    for name in names.iter().rev() {
        items = items.iter().find_map(|i| match i {
            Item::Mod(m) if m.ident == name => m.content.as_ref().map(|(_, items)| &items[..]),
            _ => None,
        })?;
    }
    Some(items)
}

/// Methods whose name only one file of the crate defines, and neither `std` nor a crate below.
fn unique_methods(krate: &Crate, below: &BTreeSet<String>) -> HashMap<String, FileId> {
    let std: BTreeSet<&str> = STD_METHODS.split_whitespace().collect();
    let unique = methods(krate)
        .into_iter()
        .filter(|(name, files)| files.len() == 1 && !std.contains(name.as_str()) && !below.contains(name));
    unique.map(|(name, files)| (name, *files.first().expect("one"))).collect()
}

/// The methods of a crate by name, and the files that define one.
#[must_use]
pub(crate) fn methods(krate: &Crate) -> HashMap<String, BTreeSet<FileId>> {
    let mut files: HashMap<String, BTreeSet<FileId>> = HashMap::new();
    for (id, source) in krate.files.iter().enumerate() {
        let mut methods = MethodNames::default();
        source.syntax.items.iter().filter(|i| !is_test(attributes(i))).for_each(|i| methods.visit_item(i));
        for name in methods.0 {
            files.entry(name).or_default().insert(id);
        }
    }
    files
}

#[derive(Default)]
struct MethodNames(Vec<String>);

impl<'a> Visit<'a> for MethodNames {
    fn visit_impl_item(&mut self, item: &'a ImplItem) {
        if let ImplItem::Fn(f) = item
            && f.sig.receiver().is_some()
        {
            self.0.push(f.sig.ident.to_string());
        }
    }

    fn visit_trait_item_fn(&mut self, f: &'a syn::TraitItemFn) {
        self.0.push(f.sig.ident.to_string());
    }
}

struct Finder<'a> {
    krate: &'a Crate,
    module: ModuleId,
    methods: &'a HashMap<String, FileId>,
    found: BTreeMap<FileId, String>,
}

impl Finder<'_> {
    fn name(&mut self, path: &[String]) {
        if let Some(file) = self.krate.resolve(self.module, path, MAX_ALIASES) {
            self.found.entry(file).or_insert_with(|| path.join("::"));
        }
    }

    fn names_of_use(&mut self, path: &mut Vec<String>, tree: &UseTree) {
        match tree {
            UseTree::Path(p) => {
                path.push(p.ident.to_string());
                self.names_of_use(path, &p.tree);
                path.pop();
            }
            UseTree::Name(n) if n.ident == "self" => self.name(path),
            UseTree::Name(n) => self.name(&[&path[..], &[n.ident.to_string()]].concat()),
            UseTree::Rename(r) => self.name(&[&path[..], &[r.ident.to_string()]].concat()),
            UseTree::Glob(_) => self.name(path),
            UseTree::Group(g) => g.items.iter().for_each(|t| self.names_of_use(path, t)),
        }
    }

    /// Paths in the arguments of a macro, which are not parsed.
    fn tokens(&mut self, tokens: TokenStream) {
        let mut path: Vec<String> = Vec::new();
        let mut colons = 0;
        for token in tokens {
            match token {
                TokenTree::Ident(i) => {
                    if colons != 2 {
                        self.end_of_path(&mut path);
                    }
                    path.push(i.to_string());
                    colons = 0;
                }
                TokenTree::Punct(p) if p.as_char() == ':' && !path.is_empty() => colons += 1,
                other => {
                    self.end_of_path(&mut path);
                    colons = 0;
                    if let TokenTree::Group(g) = other {
                        self.tokens(g.stream());
                    }
                }
            }
        }
        self.end_of_path(&mut path);
    }

    fn end_of_path(&mut self, path: &mut Vec<String>) {
        // A keyword alone stands in `pub(crate)`.
        let is_keyword = matches!(&path[..], [word] if ["crate", "super", "self"].contains(&word.as_str()));
        if is_keyword {
            path.clear();
        }
        if !path.is_empty() {
            self.name(path);
            path.clear();
        }
    }
}

impl<'a> Visit<'a> for Finder<'_> {
    fn visit_item_mod(&mut self, _: &'a syn::ItemMod) {
        // Each module is visited by itself.
    }

    fn visit_item_use(&mut self, u: &'a syn::ItemUse) {
        if matches!(u.vis, Visibility::Inherited) {
            self.names_of_use(&mut Vec::new(), &u.tree);
        }
    }

    fn visit_vis_restricted(&mut self, _: &'a syn::VisRestricted) {
        // `pub(super)` names nobody.
    }

    fn visit_impl_item(&mut self, item: &'a ImplItem) {
        let attributes = match item {
            ImplItem::Fn(f) => &f.attrs[..],
            ImplItem::Const(c) => &c.attrs[..],
            _ => &[],
        };
        if !is_test(attributes) {
            visit::visit_impl_item(self, item);
        }
    }

    fn visit_path(&mut self, p: &'a syn::Path) {
        let path: Vec<String> = p.segments.iter().map(|s| s.ident.to_string()).collect();
        self.name(&path);
        visit::visit_path(self, p);
    }

    fn visit_expr_method_call(&mut self, call: &'a syn::ExprMethodCall) {
        let name = call.method.to_string();
        if let Some(file) = self.methods.get(&name) {
            self.found.entry(*file).or_insert_with(|| format!(".{name}()"));
        }
        visit::visit_expr_method_call(self, call);
    }

    fn visit_macro(&mut self, m: &'a syn::Macro) {
        self.tokens(m.tokens.clone());
        visit::visit_macro(self, m);
    }
}

impl Crate {
    /// The file that defines what a path means in a module; `None` for other crates, local variables and generics.
    fn resolve(&self, from: ModuleId, path: &[String], steps: usize) -> Option<FileId> {
        let steps = steps.checked_sub(1)?;
        let (mut at, mut rest) = (from, path);
        let mut anchored = false;
        while let Some(first) = rest.first() {
            at = match first.as_str() {
                "crate" => 0,
                "self" => at,
                "super" => self.modules[at].parent?,
                _ => break,
            };
            anchored = true;
            rest = &rest[1..];
        }
        if rest.is_empty() {
            return anchored.then_some(self.modules[at].file);
        }
        let (name, after) = rest.split_first()?;
        match self.modules[at].names.get(name) {
            Some(Name::Item(file)) => Some(*file),
            Some(Name::Module(module)) => {
                if after.is_empty() {
                    return Some(self.modules[*module].file);
                }
                let inside = [&["self".to_owned()], after].concat();
                self.resolve(*module, &inside, steps)
            }
            Some(Name::Alias(target)) => {
                let target = [&target[..], after].concat();
                // An alias of the same name leads out of the crate.
                if &target[..] == path { None } else { self.resolve(at, &target, steps) }
            }
            None => {
                let mut globs = self.modules[at].globs.iter();
                globs.find_map(|g| self.resolve(at, &[&g[..], rest].concat(), steps))
            }
        }
    }
}

/// Groups of files that need each other in a circle, larger than one file (Tarjan's components).
#[must_use]
pub(crate) fn circles(files: usize, arrows: &Arrows) -> Vec<Vec<FileId>> {
    let mut state =
        Components { index: vec![None; files], low: vec![0; files], on: vec![false; files], ..Components::default() };
    (0..files).for_each(|f| {
        if state.index[f].is_none() {
            state.visit(f, arrows);
        }
    });
    state.found
}

#[derive(Default)]
struct Components {
    index: Vec<Option<usize>>,
    low: Vec<usize>,
    on: Vec<bool>,
    stack: Vec<FileId>,
    next: usize,
    found: Vec<Vec<FileId>>,
}

impl Components {
    fn visit(&mut self, f: FileId, arrows: &Arrows) {
        let index = self.next;
        self.next += 1;
        (self.index[f], self.low[f], self.on[f]) = (Some(index), index, true);
        self.stack.push(f);
        for to in arrows.get(&f).into_iter().flat_map(|a| a.keys().copied()) {
            match self.index[to] {
                None => {
                    self.visit(to, arrows);
                    self.low[f] = self.low[f].min(self.low[to]);
                }
                Some(i) if self.on[to] => self.low[f] = self.low[f].min(i),
                Some(_) => {}
            }
        }
        if self.low[f] == index {
            let mut component = Vec::new();
            while let Some(top) = self.stack.pop() {
                self.on[top] = false;
                component.push(top);
                if top == f {
                    break;
                }
            }
            if component.len() > 1 {
                component.sort_unstable();
                self.found.push(component);
            }
        }
    }
}
