//! Whole trees: `quire create`, `import`, `export`, `clone`, `check`, `diff`, `resize`, with tar, the kernel and e2fsck
//! as judges.

use crate::common::{needs_root, needs_tools, ok, quire, said, skip, tool};
use quire_testkit::tar::{entry, pax};
use std::path::{Path, PathBuf};

pub(crate) struct Scratch(tempfile::TempDir);

impl Scratch {
    pub(crate) fn new() -> Self {
        Scratch(tempfile::tempdir().unwrap())
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    pub(crate) fn text(&self, name: &str) -> String {
        self.path(name).display().to_string()
    }
}

pub(crate) fn fsck(image: &Path) {
    ok(tool("e2fsck").arg("-fn").arg(image));
}

/// A tree with everything that an ordinary user can make: long names, links, holes, many names, odd times.
pub(crate) fn make_tree(root: &Path) {
    let shell = r#"
        set -e
        mkdir -p "$1/usr/bin" "$1/etc/empty" "$1/many"
        echo hello >"$1/etc/motd"; chmod 4755 "$1/etc/motd"
        head -c 3000000 /dev/urandom >"$1/usr/bin/program"
        ln "$1/usr/bin/program" "$1/usr/bin/other-name"
        ln -s usr/bin "$1/bin"; ln -s "$(printf '%0150d' 7)" "$1/long-link"
        truncate -s 50M "$1/sparse"; printf end | dd of="$1/sparse" bs=1 seek=30000000 conv=notrunc status=none
        mkfifo "$1/pipe"
        touch -d '2001-02-03 04:05:06.123456789Z' "$1/etc/empty" "$1/etc/motd"
        long=$(printf 'x%.0s' $(seq 200)); echo long >"$1/$long"
        for i in $(seq 600); do echo $i >"$1/many/file-number-$i"; done
        setfattr -n user.k -v "$(printf 'line\nbreak')" "$1/etc/motd" 2>/dev/null || true
        chmod 0700 "$1/etc/empty"
    "#;
    ok(tool("sh").args(["-c", shell, "sh"]).arg(root));
}

/// What a tree of the host shows: an mtree-like list.
fn listing(root: &Path) -> String {
    let shell = r#"cd "$1" && find . -mindepth 1 ! -path ./lost+found -printf '%P %y %m %s %n %U:%G %T@ %l\n' | awk '$2 == "d" {$4 = ""} {print}' |
        sort && find . -type f -print0 | sort -z | xargs -0 sha256sum && { find . ! -path ./lost+found -print0 | sort -z | xargs -0 getfattr -h -d -m '.*' 2>/dev/null; true; }"#;
    ok(tool("sh").args(["-c", shell, "sh"]).arg(root))
}

#[test]
fn a_tree_goes_through_tar_image_and_tar_unchanged() {
    needs_tools(&["mke2fs", "tar"]);
    let s = Scratch::new();
    std::fs::create_dir(s.path("tree")).unwrap();
    make_tree(&s.path("tree"));
    for (n, flags) in ["--format=pax --xattrs -S", "--format=gnu -S", "--format=pax -z --xattrs"].iter().enumerate() {
        let (tar, image, back) =
            (s.text(&format!("{n}.tar")), s.text(&format!("{n}.img")), s.text(&format!("{n}.back")));
        let flags: Vec<&str> = flags.split(' ').collect();
        ok(tool("tar").arg("-C").arg(s.path("tree")).args(&flags).args(["-cf", &tar, "."]));
        ok(&mut quire(&["create", &image, "--from", &tar, "--size", "min+10%"]));
        fsck(Path::new(&image));
        ok(&mut quire(&["export", &image, &format!("{back}/")]));
        let mut want = listing(&s.path("tree"));
        let mut found = listing(Path::new(&back));
        if flags.contains(&"--format=gnu") {
            // That format has whole seconds, and no attributes.
            let seconds = |l: &str| {
                ok(tool("sh").args([
                    "-c",
                    "printf %s \"$1\" | sed -E 's/\\.[0-9]{9,10}//; /^user\\./d; /^# file/d; /^$/d'",
                    "sh",
                    l,
                ]))
            };
            (want, found) = (seconds(&want), seconds(&found));
        }
        assert!(want == found, "{flags:?}: want\n{want}\nfound\n{found}");
        // What was sparse takes as little as before.
        let sparse = std::os::unix::fs::MetadataExt::blocks(&std::fs::metadata(format!("{back}/sparse")).unwrap());
        assert!(n == 2 || sparse < 100, "{sparse} sectors");
        // The archive of the image holds the same again.
        ok(&mut quire(&["export", &image, &s.text("again.tar")]));
        std::fs::create_dir(s.path("again")).unwrap();
        let mut untar = tool("tar");
        untar.arg("-C").arg(s.path("again")).args(["--xattrs", "--exclude=./lost+found", "-xpf", &s.text("again.tar")]);
        ok(untar.arg("--numeric-owner"));
        let again = listing(&s.path("again"));
        let plain = listing(Path::new(&back));
        assert!(plain == again, "{flags:?}: want\n{plain}\nfound\n{again}");
        std::fs::remove_dir_all(s.path("again")).unwrap();
    }
}

#[test]
fn the_kernel_shows_the_directory_that_an_image_was_made_from() {
    needs_tools(&["mke2fs", "tar"]);
    needs_root();
    let s = Scratch::new();
    std::fs::create_dir(s.path("tree")).unwrap();
    make_tree(&s.path("tree"));
    let more = r#"set -e; chown 1234:5678 "$1/usr"; mknod "$1/null" c 1 3; setfacl -m u:7:rw "$1/etc/motd" 2>/dev/null || true
        setcap cap_net_raw+ep "$1/usr/bin/program" 2>/dev/null || true"#;
    ok(tool("sh").args(["-c", more, "sh"]).arg(s.path("tree")));
    let image = s.text("image");
    ok(&mut quire(&["create", &image, "--from", &s.text("tree"), "--size", "min"]));
    fsck(Path::new(&image));
    std::fs::create_dir(s.path("mnt")).unwrap();
    let mounted = tool("mount").args(["-o", "loop,ro,noload", &image]).arg(s.path("mnt")).output().unwrap();
    if !mounted.status.success() {
        skip("no loop mount");
    }
    let found = std::panic::catch_unwind(|| listing(&s.path("mnt")));
    ok(tool("umount").arg(s.path("mnt")));
    let want = listing(&s.path("tree"));
    let found = found.unwrap();
    // The links of the root count lost+found.
    let skip_root = |l: &str| {
        l.lines().filter(|l| !l.starts_with(" d ") && !l.contains("lost+found")).collect::<Vec<_>>().join("\n")
    };
    assert!(skip_root(&want) == skip_root(&found), "want\n{want}\nfound\n{found}");
}

#[test]
fn the_same_input_uuid_and_date_give_the_same_bytes() {
    needs_tools(&["mke2fs", "tar"]);
    let s = Scratch::new();
    std::fs::create_dir(s.path("tree")).unwrap();
    make_tree(&s.path("tree"));
    let uuid = "01234567-89ab-cdef-0123-456789abcdef";
    for image in ["a", "b"] {
        let image = s.text(image);
        let args = ["--uuid", uuid, "--source-date-epoch", "1700000000", "--size", "min+5%"];
        ok(quire(&["create", &image, "--from", &s.text("tree")]).args(args));
    }
    assert!(std::fs::read(s.path("a")).unwrap() == std::fs::read(s.path("b")).unwrap());
}

#[test]
fn the_smallest_size_fits_and_a_margin_is_left_free() {
    needs_tools(&["mke2fs", "tar"]);
    let s = Scratch::new();
    std::fs::create_dir(s.path("tree")).unwrap();
    make_tree(&s.path("tree"));
    let free = |size: &str| {
        let image = s.text("image");
        ok(&mut quire(&["create", &image, "--from", &s.text("tree"), "--size", size]));
        fsck(Path::new(&image));
        let df: serde_json::Value = serde_json::from_str(&ok(&mut quire(&["df", "--json", &image]))).unwrap();
        (df["available"].as_u64().unwrap(), df["used"].as_u64().unwrap())
    };
    let (least, used) = free("min");
    assert!(least < used / 20, "min leaves {least} of {used} bytes");
    let (margin, used) = free("min+20%");
    assert!(
        margin >= used / 5 - (64 << 10) && margin < used / 5 + used / 10,
        "min+20% leaves {margin} of {used} bytes"
    );
}

#[test]
fn names_that_leave_the_root_are_refused_and_the_image_stays_as_it_was() {
    needs_tools(&["mke2fs", "tar"]);
    let s = Scratch::new();
    let image = s.text("image");
    ok(&mut quire(&["create", &image, "--size", "64M"]));
    ok(&mut quire(&["mkdir", &format!("{image}:/dir")]));
    std::fs::write(s.path("f"), "x").unwrap();
    let before = ok(&mut quire(&["tree", &image]));
    for transform in ["s,^,../,", "s,^,/../,", "s,^,a/../../,"] {
        let tar = s.text("evil.tar");
        ok(tool("tar").arg("-C").arg(s.0.path()).args(["-P", "--transform", transform, "-cf", &tar, "f"]));
        let (code, text) = said(&mut quire(&["import", &format!("{image}:/dir"), &tar]));
        assert!(code == 1 && text.contains("leave the root"), "{transform}: {code}: {text}");
    }
    // Through a symbolic link of the same archive.
    std::fs::create_dir(s.path("t")).unwrap();
    std::os::unix::fs::symlink("../..", s.path("t/up")).unwrap();
    let tar = s.text("evil.tar");
    ok(tool("tar").arg("-C").arg(s.path("t")).args(["-cf", &tar, "up"]));
    ok(tool("tar").arg("-C").arg(s.0.path()).args(["--transform", "s,^,up/,", "-rf", &tar, "f"]));
    let (code, text) = said(&mut quire(&["import", &format!("{image}:/dir"), &tar]));
    assert!(code == 1 && text.contains("leads out of the root"), "{code}: {text}");
    assert_eq!(ok(&mut quire(&["tree", &image])), before);
    fsck(Path::new(&image));
    // An archive that is cut off changes nothing, either.
    let whole = std::fs::read(&tar).unwrap();
    std::fs::write(&tar, &whole[..700]).unwrap();
    assert_eq!(said(&mut quire(&["import", &image, &tar])).0, 1);
    assert_eq!(ok(&mut quire(&["tree", &image])), before);
}

#[test]
fn names_with_a_slash_in_front_are_imported_below_the_root_of_the_import() {
    needs_tools(&["mke2fs", "tar"]);
    let s = Scratch::new();
    let (image, tar, tree) = (s.text("image"), s.text("absolute.tar"), s.text("tree"));
    let make = r#"mkdir "$1"; echo data >"$1/f"; ln "$1/f" "$1/hard"; ln -s /etc/passwd "$1/soft""#;
    ok(tool("sh").args(["-ec", make, "sh", &tree]));
    ok(tool("tar").args(["-P", "-cf", &tar, &tree]));
    for command in
        [&["create", &image, "--from", &tar, "--size", "16M"][..], &["import", &format!("{image}:/lost+found"), &tar]]
    {
        ok(&mut quire(command));
    }
    for top in ["", "/lost+found"] {
        let at = |name: &str| format!("{image}:{top}{tree}/{name}");
        assert_eq!(ok(&mut quire(&["cat", &at("f"), &at("hard")])), "data\ndata\n");
        assert!(ok(&mut quire(&["ls", "-l", &at("soft")])).contains("-> /etc/passwd"));
    }
    fsck(Path::new(&image));
}

#[test]
fn layers_of_an_oci_layout_hide_what_lies_below() {
    needs_tools(&["mke2fs", "tar"]);
    let s = Scratch::new();
    let shell = r#"
        set -e; cd "$1"
        mkdir -p l1/keep l1/opaque l1/gone l2/opaque l2/keep oci/blobs/sha256
        echo 1 >l1/keep/a; echo 1 >l1/opaque/old; echo 1 >l1/gone/x; echo 1 >l1/file
        echo 2 >l2/opaque/new; : >l2/opaque/.wh..wh..opq; : >l2/.wh.gone; : >l2/keep/.wh.a; echo 2 >l2/keep/b
        blob() { sum=$(sha256sum "$1" | cut -d' ' -f1); cp "$1" oci/blobs/sha256/$sum; echo "$sum"; }
        desc() { echo "{\"mediaType\":\"$1\",\"digest\":\"sha256:$2\",\"size\":$(stat -c %s oci/blobs/sha256/$2)}"; }
        tar -C l1 -cf l1.tar .; tar -C l2 -czf l2.tgz .
        a=$(blob l1.tar); b=$(blob l2.tgz); echo '{"architecture":"amd64","os":"linux","rootfs":{"type":"layers","diff_ids":[]}}' >config
        c=$(blob config); v=application/vnd.oci.image
        echo "{\"schemaVersion\":2,\"config\":$(desc $v.config.v1+json $c),\"layers\":[$(desc $v.layer.v1.tar $a),$(desc $v.layer.v1.tar+gzip $b)]}" >manifest
        m=$(blob manifest); echo '{"imageLayoutVersion":"1.0.0"}' >oci/oci-layout
        echo "{\"schemaVersion\":2,\"manifests\":[$(desc $v.manifest.v1+json $m)]}" >oci/index.json; echo $b >which
    "#;
    ok(tool("sh").args(["-c", shell, "sh"]).arg(s.0.path()));
    let image = s.text("image");
    ok(&mut quire(&["create", &image, "--from", &s.text("oci"), "--size", "min+50%"]));
    fsck(Path::new(&image));
    let tree = ok(&mut quire(&["find", &image, "--type", "file"]));
    assert_eq!(tree, "/file\n/keep/b\n/opaque/new\n");
    // A blob that is not what its digest says is refused, and no image appears.
    let which = std::fs::read_to_string(s.path("which")).unwrap();
    let blob = s.path("oci/blobs/sha256").join(which.trim());
    let mut bytes = std::fs::read(&blob).unwrap();
    bytes.extend(b"more");
    std::fs::write(&blob, bytes).unwrap();
    let (code, text) = said(&mut quire(&["create", &s.text("other"), "--from", &s.text("oci")]));
    assert!(code == 1 && !s.path("other").exists(), "{code}: {text}");
}

#[test]
fn a_create_that_is_killed_leaves_what_had_the_name() {
    needs_tools(&["mke2fs", "tar"]);
    let s = Scratch::new();
    std::fs::create_dir(s.path("tree")).unwrap();
    make_tree(&s.path("tree"));
    std::fs::write(s.path("image"), "old").unwrap();
    for ms in [1, 20, 60] {
        let mut child = quire(&["create", &s.text("image"), "--from", &s.text("tree")]).spawn().unwrap();
        std::thread::sleep(std::time::Duration::from_millis(ms));
        child.kill().ok();
        let done = child.wait().unwrap().success();
        // The old one, or a whole one: it may be killed behind the rename.
        if done || std::fs::read(s.path("image")).unwrap() != b"old" {
            fsck(&s.path("image"));
        }
        std::fs::write(s.path("image"), "old").unwrap();
    }
}

#[test]
fn an_image_of_a_small_size_has_a_journal_or_is_refused() {
    needs_tools(&["mke2fs"]);
    let s = Scratch::new();
    let image = s.text("image");
    for (size, block) in [("2M", 1024), ("4M", 1024), ("8M", 4096)] {
        ok(&mut quire(&["create", &image, "--size", size]));
        let info = ok(&mut quire(&["info", "--json", &image]));
        let info: serde_json::Value = serde_json::from_str(&info).unwrap();
        assert_eq!((&info["block_size"], info["journal"].is_null()), (&block.into(), false), "{size}");
        ok(&mut quire(&["mkdir", &format!("{image}:/d")]));
        fsck(Path::new(&image));
    }
    std::fs::remove_file(&image).unwrap();
    let why = "too small for a journal, which needs 2 MiB; -O ^has_journal does without";
    for size in ["0", "1K", "100K", "2047K"] {
        let refused = said(&mut quire(&["create", &image, "--size", size]));
        assert_eq!(refused, (1, format!("quire: create: {image}: {why}\n")), "{size}");
        assert!(!s.path("image").exists(), "{size}");
    }
    for size in ["1K", "32K", "100K"] {
        let (code, words) = said(&mut quire(&["create", &image, "--size", size, "-O", "^has_journal"]));
        let beginning = format!("quire: create: {image}: too small for an ext4 file system");
        assert!(code == 1 && words.starts_with(&beginning) && !words.contains(".quire-"), "{size}: {code}: {words}");
    }
    ok(&mut quire(&["create", &image, "--size", "1M", "-O", "^has_journal"]));
    fsck(Path::new(&image));
}

#[test]
fn an_export_to_tar_names_each_socket_that_it_leaves_out() {
    needs_tools(&["mke2fs", "tar"]);
    let s = Scratch::new();
    let (image, tar) = (s.text("image"), s.text("tar"));
    ok(&mut quire(&["create", &image, "--size", "16M"]));
    ok(&mut quire(&["mkdir", &format!("{image}:/run")]));
    ok(&mut quire(&["touch", "--node", "s", &format!("{image}:/run/log"), &format!("{image}:/s\x1b")]));
    ok(&mut quire(&["touch", &format!("{image}:/run/pid")]));
    let lines = ["/run/log", "/s\\u{1b}"].map(|path| format!("quire: export: {image}:{path}: socket ignored\n"));
    assert_eq!(ok(&mut quire(&["export", &image, &tar])), lines.concat());
    let names = ok(tool("tar").args(["-tf", &tar]));
    assert!(names.contains("run/pid") && !names.contains("log"), "{names}");
    // A directory of the host has it.
    assert_eq!(ok(&mut quire(&["export", &format!("{image}:/run"), &s.text("out/")])), "");
}

#[test]
fn images_are_cloned_compared_checked_and_resized() {
    needs_tools(&["mke2fs", "tar"]);
    let s = Scratch::new();
    let (a, b) = (s.text("a.img"), s.text("b.img"));
    ok(&mut quire(&["create", &a, "--size", "64M"]));
    ok(&mut quire(&["mkdir", &format!("{a}:/d")]));
    ok(&mut quire(&["clone", &a, &b]));
    assert_eq!(said(&mut quire(&["diff", &a, &b])), (0, String::new()));
    assert_eq!(said(&mut quire(&["clone", &a, &b])).0, 1, "a copy does not replace what is there");
    ok(&mut quire(&["chmod", "0700", &format!("{b}:/d")]));
    ok(&mut quire(&["touch", &format!("{b}:/new")]));
    assert_eq!(said(&mut quire(&["diff", &a, &b])), (1, "! d (mode)\n+ new\n".to_owned()));
    assert_eq!(said(&mut quire(&["check", &b])).0, 0);
    ok(&mut quire(&["resize", &b, "128M"]));
    assert_eq!(std::fs::metadata(&b).unwrap().len(), 128 << 20);
    ok(&mut quire(&["resize", &b, "min"]));
    assert!(std::fs::metadata(&b).unwrap().len() < 64 << 20);
    fsck(Path::new(&b));
    assert_eq!(ok(&mut quire(&["ls", &b])), "d\nlost+found\nnew\n");
    ok(tool("debugfs").args(["-w", "-R", "sif /d links_count 7", &b]));
    assert_eq!(said(&mut quire(&["check", &b])).0, 4);
}

#[test]
fn an_attribute_that_ext4_does_not_store_is_told_once_and_left_out() {
    needs_tools(&["mke2fs", "tar"]);
    let s = Scratch::new();
    let (image, tar) = (s.text("image"), s.text("mac.tar"));
    let of = |name: &str| [pax(&[("SCHILY.xattr.com.apple.quarantine", "1")]), entry(name, b'0', b"data")].concat();
    std::fs::write(&tar, [of("a"), of("b")].concat()).unwrap();
    for args in [&["create", &image, "--from", &tar][..], &["import", &image, &tar]] {
        let (code, text) = said(&mut quire(args));
        let told =
            format!("quire: {}: a: attribute com.apple.quarantine ignored: ext4 does not store it there", args[0]);
        assert_eq!((code, text.matches("ignored").count()), (0, 1), "{args:?}: {text}");
        assert!(text.contains(&told), "{args:?}: {text}");
    }
    fsck(Path::new(&image));
}
