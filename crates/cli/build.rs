//! Tells the program which commit it was built from, for `quire --version`.
//!
//! `QUIRE_COMMIT` says so where there is no repository (a package's build); else git does; else it stays unsaid.

use std::process::Command;

fn git(args: &[&str]) -> Option<String> {
    let out = Command::new("git").args(args).output().ok().filter(|o| o.status.success())?;
    Some(String::from_utf8(out.stdout).ok()?.trim().to_owned()).filter(|s| !s.is_empty())
}

fn main() {
    println!("cargo::rerun-if-env-changed=QUIRE_COMMIT");
    println!("cargo::rerun-if-changed=build.rs");
    let said = std::env::var("QUIRE_COMMIT").ok().filter(|c| !c.is_empty());
    let commit = said.or_else(|| {
        // HEAD names a branch; the branch's own file, or the packed references, change with a commit.
        for name in ["HEAD", "packed-refs"].map(str::to_owned).into_iter().chain(git(&["symbolic-ref", "-q", "HEAD"])) {
            let path = git(&["rev-parse", "--git-path", &name]).filter(|p| std::path::Path::new(p).exists());
            path.iter().for_each(|p| println!("cargo::rerun-if-changed={p}"));
        }
        git(&["rev-parse", "--short=12", "HEAD"])
    });
    println!("cargo::rustc-env=QUIRE_COMMIT={}", commit.as_deref().unwrap_or("unknown"));
}
