//! The recipes of docs/toolbox.md do what they say.

use crate::common::{needs_tools, tool};

#[test]
fn the_recipes_of_the_toolbox_run_as_written() {
    needs_tools(&["mke2fs", "resize2fs"]);
    let page = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/toolbox.md")).unwrap();
    let recipes: Vec<&str> = page.split("```sh\n").skip(1).map(|r| r.split("```").next().unwrap()).collect();
    assert_eq!(recipes.len(), 10);
    let dir = tempfile::tempdir().unwrap();
    let quire = std::path::Path::new(env!("CARGO_BIN_EXE_quire")).parent().unwrap();
    let path = format!("{}:{}:/usr/sbin:/sbin", quire.display(), std::env::var("PATH").unwrap());
    for recipe in recipes {
        let out = tool("bash")
            .args(["-e", "-o", "pipefail", "-c", recipe])
            .env("PATH", &path)
            .current_dir(dir.path())
            .output();
        let out = out.unwrap();
        let said = format!("{}{}", String::from_utf8_lossy(&out.stdout), String::from_utf8_lossy(&out.stderr));
        assert!(out.status.success(), "{recipe}\n{said}");
    }
}
