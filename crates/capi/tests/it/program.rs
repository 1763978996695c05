//! Programs in C and C++ use the library as it is installed.

use quire_testkit::needs_tools;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The library as `make install-lib` puts it down, below a folder of its own.
struct Installed {
    root: tempfile::TempDir,
}

fn script(arguments: &[&str], destdir: &Path) {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scripts/install-lib.sh");
    // target/debug/deps/it-... stands beside the libraries that were built for it.
    let libraries = std::env::current_exe().unwrap().parent().unwrap().to_owned();
    let out = Command::new(script)
        .args(arguments)
        .env("DESTDIR", destdir)
        .env("PREFIX", "/usr")
        .env("LIBRARY", libraries)
        .output()
        .unwrap();
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
}

impl Installed {
    fn new() -> Self {
        let root = tempfile::tempdir().unwrap();
        script(&[], root.path());
        Installed { root }
    }

    fn lib(&self) -> PathBuf {
        self.root.path().join("usr/lib")
    }

    fn pkg_config(&self, arguments: &[&str]) -> Vec<String> {
        let out = Command::new("pkg-config")
            .args(arguments)
            .arg("quire")
            .env("PKG_CONFIG_LIBDIR", self.lib().join("pkgconfig"))
            .env("PKG_CONFIG_SYSROOT_DIR", self.root.path())
            // Below a sysroot /usr/include is no default folder.
            .env("PKG_CONFIG_ALLOW_SYSTEM_CFLAGS", "1")
            .env("PKG_CONFIG_ALLOW_SYSTEM_LIBS", "1")
            .output()
            .unwrap();
        assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
        String::from_utf8(out.stdout).unwrap().split_whitespace().map(str::to_owned).collect()
    }
}

fn run_example(installed: &Installed, flags: &[String]) {
    let dir = tempfile::tempdir().unwrap();
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/image.c");
    let program = dir.path().join("program");
    let warnings = ["-std=c11", "-Wall", "-Wextra", "-Wpedantic", "-Werror"];
    let out = Command::new("cc").args(warnings).arg(source).arg("-o").arg(&program).args(flags).output().expect("cc");
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    let image = dir.path().join("image");
    let out = Command::new(program).arg(&image).env("LD_LIBRARY_PATH", installed.lib()).output().unwrap();
    let said = String::from_utf8_lossy(&out.stdout);
    assert!(out.status.success(), "{said}{}", String::from_utf8_lossy(&out.stderr));
    let expected = "sandbox\n/missing: no such file or directory\nhostname 100644 8\nname 120777 8\n";
    assert_eq!(said, expected);
    quire_testkit::tools::run("e2fsck", &["-fn", image.to_str().unwrap()]);
}

#[test]
fn a_c_program_uses_the_shared_library_by_pkg_config() {
    needs_tools(&["pkg-config"]);
    let installed = Installed::new();
    run_example(&installed, &installed.pkg_config(&["--cflags", "--libs"]));
}

#[test]
fn a_c_program_uses_the_static_library() {
    let installed = Installed::new();
    let include = format!("-I{}", installed.root.path().join("usr/include").display());
    let library = installed.lib().join("libquire.a").to_str().unwrap().to_owned();
    let system = ["-lpthread", "-ldl", "-lm"].map(str::to_owned);
    run_example(&installed, &[vec![include, library], system.to_vec()].concat());
}

#[test]
fn a_cpp_compiler_takes_the_header() {
    needs_tools(&["c++"]);
    let dir = tempfile::tempdir().unwrap();
    let source = dir.path().join("main.cc");
    std::fs::write(&source, "#include <quire.h>\nint main() { return quire_version()[0] == '0' ? 0 : 1; }\n").unwrap();
    let include = Path::new(env!("CARGO_MANIFEST_DIR")).join("include");
    let made = Command::new("c++").args(["-fsyntax-only", "-Werror", "-I"]).arg(include).arg(&source).status();
    assert!(made.unwrap().success());
}

#[test]
fn what_was_installed_is_removed_again() {
    let installed = Installed::new();
    script(&["--remove"], installed.root.path());
    let left = Command::new("find").arg(installed.root.path()).args(["!", "-type", "d"]).output().unwrap().stdout;
    assert_eq!(String::from_utf8_lossy(&left), "");
}
