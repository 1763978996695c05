//! The modules of a crate, as the compiler finds them: from the crate's root file through its `mod` items.
//!
//! Code under `#[cfg(test)]` is left out, because tests may look at everything.

use anyhow::{Context, Result};
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use syn::{Attribute, File, Item, UseTree};

/// Index into [`Crate::files`].
pub(crate) type FileId = usize;
/// Index into [`Crate::modules`].
pub(crate) type ModuleId = usize;

/// A parsed source file.
pub(crate) struct Source {
    pub path: PathBuf,
    pub syntax: File,
}

/// What a name in a module stands for.
#[derive(Clone, Debug)]
pub(crate) enum Name {
    /// Defined in this file.
    Item(FileId),
    Module(ModuleId),
    /// Brought in by a `use` item.
    Alias(Vec<String>),
}

/// A module and the names in it.
pub(crate) struct Module {
    pub parent: Option<ModuleId>,
    pub file: FileId,
    /// Paths that start here may also be written through the module's own path.
    pub path: Vec<String>,
    pub names: HashMap<String, Name>,
    /// `use PATH::*`.
    pub globs: Vec<Vec<String>>,
}

/// A crate's product code.
pub(crate) struct Crate {
    pub name: String,
    pub files: Vec<Source>,
    pub modules: Vec<Module>,
}

impl Crate {
    /// Reads a crate from its root file (`src/lib.rs` or `src/main.rs`).
    ///
    /// # Errors
    /// A file cannot be read or parsed.
    pub(crate) fn load(name: &str, root: &Path) -> Result<Self> {
        let mut krate = Crate { name: name.to_owned(), files: Vec::new(), modules: Vec::new() };
        let file = krate.read(root)?;
        let dir = root.parent().context("a root file lies in a folder")?.to_owned();
        let module = krate.module(None, file, Vec::new());
        let items = krate.files[file].syntax.items.clone();
        krate.collect(module, &items, &dir)?;
        Ok(krate)
    }

    fn read(&mut self, path: &Path) -> Result<FileId> {
        let text = std::fs::read_to_string(path).with_context(|| path.display().to_string())?;
        let syntax = syn::parse_file(&text).with_context(|| path.display().to_string())?;
        self.files.push(Source { path: path.to_owned(), syntax });
        Ok(self.files.len() - 1)
    }

    fn module(&mut self, parent: Option<ModuleId>, file: FileId, path: Vec<String>) -> ModuleId {
        self.modules.push(Module { parent, file, path, names: HashMap::new(), globs: Vec::new() });
        self.modules.len() - 1
    }

    /// Enters the items of a module; `dir` is where the files of its child modules lie.
    fn collect(&mut self, module: ModuleId, items: &[Item], dir: &Path) -> Result<()> {
        let file = self.modules[module].file;
        for item in items.iter().filter(|i| !is_test(attributes(i))) {
            match item {
                Item::Mod(m) => {
                    let name = m.ident.to_string();
                    let path = [&self.modules[module].path[..], std::slice::from_ref(&name)].concat();
                    let child = match &m.content {
                        Some((_, items)) => {
                            let child = self.module(Some(module), file, path);
                            self.collect(child, items, &dir.join(&name))?;
                            child
                        }
                        None => {
                            let (source, inside) = child_file(dir, &name)?;
                            let child_file = self.read(&source)?;
                            let child = self.module(Some(module), child_file, path);
                            let items = self.files[child_file].syntax.items.clone();
                            self.collect(child, &items, &inside)?;
                            child
                        }
                    };
                    self.modules[module].names.insert(name, Name::Module(child));
                }
                Item::Use(u) => self.collect_use(module, &mut Vec::new(), &u.tree),
                other => {
                    for name in defined(other) {
                        self.modules[module].names.insert(name, Name::Item(file));
                    }
                }
            }
        }
        Ok(())
    }

    fn collect_use(&mut self, module: ModuleId, path: &mut Vec<String>, tree: &UseTree) {
        match tree {
            UseTree::Path(p) => {
                path.push(p.ident.to_string());
                self.collect_use(module, path, &p.tree);
                path.pop();
            }
            UseTree::Name(n) => {
                let name = n.ident.to_string();
                let (local, target) = if name == "self" {
                    (path.last().cloned().unwrap_or_default(), path.clone())
                } else {
                    (name.clone(), [&path[..], &[name]].concat())
                };
                self.modules[module].names.entry(local).or_insert(Name::Alias(target));
            }
            UseTree::Rename(r) => {
                let target = [&path[..], &[r.ident.to_string()]].concat();
                self.modules[module].names.entry(r.rename.to_string()).or_insert(Name::Alias(target));
            }
            UseTree::Glob(_) => self.modules[module].globs.push(path.clone()),
            UseTree::Group(g) => g.items.iter().for_each(|t| self.collect_use(module, path, t)),
        }
    }

    /// The path of a file below the crate's `src`.
    #[must_use]
    pub(crate) fn short(&self, file: FileId) -> String {
        let src = self.files[0].path.parent().expect("a root file lies in a folder");
        self.files[file].path.strip_prefix(src).unwrap_or(&self.files[file].path).display().to_string()
    }
}

/// The file of an out-of-line module, and the folder of its own children.
fn child_file(dir: &Path, name: &str) -> Result<(PathBuf, PathBuf)> {
    let (flat, nested) = (dir.join(format!("{name}.rs")), dir.join(name).join("mod.rs"));
    let file = if flat.exists() { flat } else { nested };
    anyhow::ensure!(file.exists(), "no file for module {name} in {}", dir.display());
    Ok((file, dir.join(name)))
}

/// True for `#[cfg(test)]`, alone or with alternatives, and for `#[test]`.
#[must_use]
pub(crate) fn is_test(attributes: &[Attribute]) -> bool {
    attributes.iter().any(|a| {
        let cfg_of_test = || {
            let tokens = a.meta.require_list().map(|l| l.tokens.to_string()).unwrap_or_default();
            tokens.split(|c: char| !c.is_alphanumeric() && c != '_').any(|word| word == "test")
                && !tokens.contains("not")
        };
        a.path().is_ident("test") || (a.path().is_ident("cfg") && cfg_of_test())
    })
}

/// The attributes of an item.
#[must_use]
pub(crate) fn attributes(item: &Item) -> &[Attribute] {
    match item {
        Item::Const(i) => &i.attrs,
        Item::Enum(i) => &i.attrs,
        Item::Fn(i) => &i.attrs,
        Item::Impl(i) => &i.attrs,
        Item::Macro(i) => &i.attrs,
        Item::Mod(i) => &i.attrs,
        Item::Static(i) => &i.attrs,
        Item::Struct(i) => &i.attrs,
        Item::Trait(i) => &i.attrs,
        Item::Type(i) => &i.attrs,
        Item::Union(i) => &i.attrs,
        Item::Use(i) => &i.attrs,
        _ => &[],
    }
}

/// Names that an item brings into its module.
fn defined(item: &Item) -> Vec<String> {
    let ident = match item {
        Item::Const(i) => &i.ident,
        Item::Enum(i) => &i.ident,
        Item::Fn(i) => &i.sig.ident,
        Item::Static(i) => &i.ident,
        Item::Struct(i) => &i.ident,
        Item::Trait(i) => &i.ident,
        Item::Type(i) => &i.ident,
        Item::Union(i) => &i.ident,
        Item::Macro(i) => return i.ident.iter().map(ToString::to_string).collect(),
        _ => return Vec::new(),
    };
    vec![ident.to_string()]
}
