//! Which image of an OCI layout is taken.

use crate::common::scratch;
use quire::archive::{ImportOptions, Source, import};
use quire_testkit::tar::{BLOCK, entry};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use std::path::Path;

const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
const INDEX: &str = "application/vnd.oci.image.index.v1+json";

/// What Docker calls the two.
const DOCKER_MANIFEST: &str = "application/vnd.docker.distribution.manifest.v2+json";
const DOCKER_INDEX: &str = "application/vnd.docker.distribution.manifest.list.v2+json";

/// A layout that is being made.
struct Layout {
    dir: tempfile::TempDir,
}

impl Layout {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(dir.path().join("blobs/sha256")).unwrap();
        std::fs::write(dir.path().join("oci-layout"), r#"{"imageLayoutVersion":"1.0.0"}"#).unwrap();
        Layout { dir }
    }

    /// Stores a blob; its descriptor.
    fn blob(&self, media_type: &str, bytes: &[u8]) -> Value {
        let hex: String = Sha256::digest(bytes).iter().map(|b| format!("{b:02x}")).collect();
        std::fs::write(self.dir.path().join("blobs/sha256").join(&hex), bytes).unwrap();
        json!({"mediaType": media_type, "digest": format!("sha256:{hex}"), "size": bytes.len()})
    }

    /// An image with an empty file of this name.
    fn image(&self, file: &str) -> Value {
        let config = self.blob("application/vnd.oci.image.config.v1+json", b"{}");
        let tar = [entry(file, b'0', b""), vec![0; 2 * BLOCK]].concat();
        let layer = self.blob("application/vnd.oci.image.layer.v1.tar", &tar);
        let manifest = json!({"schemaVersion": 2, "config": config, "layers": [layer]});
        self.blob(MANIFEST, manifest.to_string().as_bytes())
    }

    /// An index inside of the layout's own.
    fn nested(&self, manifests: &[Value]) -> Value {
        self.blob(INDEX, index(manifests).as_bytes())
    }

    /// What is imported: the name of the image's file, or the error.
    fn take(&self, manifests: &[Value], reference: Option<&str>) -> Result<String, String> {
        std::fs::write(self.dir.path().join("index.json"), index(manifests)).unwrap();
        let options = reference.map_or(ImportOptions::new(), |name| ImportOptions::new().reference(name));
        let fs = scratch();
        import(&fs, "/", Source::detect(self.dir.path()).unwrap(), &options).map_err(|e| e.to_string())?;
        let names = fs.read_dir("/").unwrap().into_iter().map(|e| e.name.into_string().unwrap());
        Ok(names.filter(|name| name != "lost+found").collect::<Vec<_>>().join(" "))
    }
}

fn index(manifests: &[Value]) -> String {
    json!({"schemaVersion": 2, "manifests": manifests}).to_string()
}

fn named(mut image: Value, name: &str) -> Value {
    image["annotations"] = json!({"org.opencontainers.image.ref.name": name});
    image
}

fn of_machine(mut image: Value, architecture: &str) -> Value {
    image["platform"] = json!({"os": "linux", "architecture": architecture});
    image
}

fn here() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
}

#[test]
fn a_reference_takes_the_image_of_that_name_and_no_other() {
    let l = Layout::new();
    let (plain, one, two) = (l.image("plain"), named(l.image("one"), "1.0"), named(l.image("two"), "2.0"));
    let all = [plain.clone(), one.clone(), two];
    assert_eq!(l.take(&all, Some("1.0")), Ok("one".to_owned()));
    assert_eq!(l.take(&all, Some("2.0")), Ok("two".to_owned()));
    for of in [&[plain.clone()][..], &[plain.clone(), one.clone()], &[]] {
        let error = l.take(of, Some("3.0")).unwrap_err();
        assert!(error.ends_with("index.json: the layout has no image with the reference 3.0"), "{error}");
    }
    assert_eq!(l.take(&[plain], None), Ok("plain".to_owned()));
    assert_eq!(l.take(&[one], None), Ok("one".to_owned()));
    assert!(l.take(&all, None).unwrap_err().ends_with("name one by its reference"));
}

#[test]
fn an_index_and_a_manifest_of_docker_are_read_as_those_of_oci() {
    let l = Layout::new();
    let docker = |mut image: Value| {
        image["mediaType"] = DOCKER_MANIFEST.into();
        image
    };
    let (ours, other) = (of_machine(docker(l.image("ours")), here()), of_machine(docker(l.image("other")), "pdp11"));
    assert_eq!(l.take(std::slice::from_ref(&ours), None), Ok("ours".to_owned()));
    let mut list = l.nested(&[other, ours]);
    list["mediaType"] = DOCKER_INDEX.into();
    assert_eq!(l.take(&[list], None), Ok("ours".to_owned()));
}

#[test]
fn a_named_index_is_searched_for_the_machine_and_not_for_the_name() {
    let l = Layout::new();
    let (ours, other) = (of_machine(l.image("ours"), here()), of_machine(l.image("other"), "pdp11"));
    let inside = named(l.nested(&[other.clone(), ours.clone()]), "1.0");
    assert_eq!(l.take(&[l.image("plain"), inside], Some("1.0")), Ok("ours".to_owned()));
    // The name may be that of images for several machines, too.
    let both = [named(other, "1.0"), named(ours, "1.0"), named(l.image("two"), "2.0")];
    assert_eq!(l.take(&both, Some("1.0")), Ok("ours".to_owned()));
    let twice = [named(l.image("a"), "1.0"), named(l.image("b"), "1.0")];
    let error = l.take(&twice, Some("1.0")).unwrap_err();
    assert!(error.ends_with("the layout has several images with the reference 1.0"), "{error}");
    assert!(Path::new(error.split(": ").next().unwrap()).ends_with("index.json"), "{error}");
}
