use super::known::{Fate, OPTIONS};
use super::*;

fn parse(list: &str) -> MountOptions {
    MountOptions::parse(list).unwrap_or_else(|e| panic!("{list}: {e}"))
}

#[test]
fn nothing_said_means_defaults() {
    assert_eq!(parse(""), MountOptions::default());
    assert_eq!(parse("defaults,rw,delalloc,x-systemd.automount,comment=a"), MountOptions::default());
}

#[test]
fn ext4_names_are_understood() {
    let o = parse("data=journal,errors=remount-ro,commit=30,noatime,nodiratime,grpid,nodiscard,noacl,nouser_xattr");
    assert_eq!(
        (o.data, o.on_error, o.commit),
        (Some(Route::Journal), Some(OnError::RemountReadOnly), Some(Duration::from_secs(30)))
    );
    assert_eq!((o.atime, o.no_dir_atime, o.grpid), (Some(Atime::No), true, Some(true)));
    assert_eq!((o.discard, o.acl, o.user_xattr), (Some(false), Some(false), Some(false)));
    assert_eq!(parse("commit=0").commit, None);
    let ages =
        ["ro", "checkpoint_age=0", "checkpoint_age=90"].map(|list| parse(list).checkpoint_age.map(|d| d.as_secs()));
    assert_eq!(ages, [None, Some(0), Some(90)]);
    let o = parse("min_batch_time=50,max_batch_time=0");
    assert_eq!((o.min_batch_time, o.max_batch_time), (Some(Duration::from_micros(50)), Some(Duration::ZERO)));
    assert!(parse("data_err=abort").data_error_aborts && !parse("data_err=abort,data_err=ignore").data_error_aborts);
    assert!(parse("minixdf").minix_df && !parse("minixdf,bsddf").minix_df);
    let o = parse(
        "data=adaptive,record=block,commit_mode=barrier,journal_rule=*.db=journal,*-wal=ordered,adaptive_default=ordered,ro",
    );
    assert_eq!(o.journal_rules.unwrap().len(), 2);
    assert!(o.read_only && o.adaptive_default == Some(JournalingMode::Ordered));
    assert_eq!(parse("profile=ext4-writeback").data, Some(Route::Writeback));
    assert_eq!(parse("journal_dev=0x0801").journal_path, Some("/dev/block/8:1".into()));
    assert!(parse("noload,rw").only_reads(), "without the journal nothing may be written");
}

#[test]
fn sizes_have_units() {
    assert_eq!(parse("offset=1048576").offset, 1 << 20);
    assert_eq!(parse("offset=1M,cache_size=1G").cache_bytes, Some(1 << 30));
    assert_eq!((parse("readers=4").readers, parse("").readers), (Some(4), None));
    for wrong in [
        "readers=0",
        "readers=x",
        "readers=257",
        "offset=",
        "offset=x",
        "offset=1Q",
        "offset=99999999999T",
        "cache_size=1K",
    ] {
        assert!(matches!(MountOptions::parse(wrong), Err(OptionError::Bad { .. })), "{wrong}");
    }
}

#[test]
fn a_later_option_wins() {
    let o = parse("ro,noexec,sync,rw,exec,async,noatime,strictatime");
    assert_eq!((o.read_only, o.no_exec, o.sync, o.atime), (false, false, false, Some(Atime::Strict)));
    let o = parse("user,exec");
    assert_eq!((o.no_dev, o.no_suid, o.no_exec), (true, true, false));
}

#[test]
fn the_four_choices_go_together_or_are_refused_with_the_nearest() {
    let o = parse("profile=ext4-journal,data=writeback");
    assert_eq!(o.choices(Route::Ordered), Ok(Choices::of_route(Route::Writeback)));
    assert_eq!(parse("data=writeback,profile=ext4-journal").data, Some(Route::Journal));
    assert_eq!(parse("").choices(Route::Journal).unwrap().route, Route::Journal);
    let refused = |list| match MountOptions::parse(list) {
        Err(OptionError::Bad { option, why }) => format!("{option}: {why}"),
        other => panic!("{list}: {other:?}"),
    };
    assert!(refused("data=none,record=range").contains("the nearest combination is data=none,record=block"));
    assert!(refused("data=journal,checkpoint=regions:2").contains("checkpoint=lazy"));
    assert!(refused("profile=djfs").contains("nvram=PATH"));
    let o = parse("profile=djfs4,nvram=/dev/shm/n,nvram_simulated,nvram_size=128M,nvram_latency_ns=40");
    assert_eq!(o.choices(Route::Auto).unwrap().checkpoint, Checkpoint::Regions(4));
    let n = o.nvram_options();
    assert_eq!((n.simulated, n.size, n.latency), (true, Some(128 << 20), Duration::from_nanos(40)));
    assert!(refused("nvram_simulated").contains("nvram=PATH") && refused("nvram=/x,nvram_size=4K").contains("1M"));
}

#[test]
fn the_profile_for_databases_hands_writes_over_unless_told_otherwise() {
    let path = |list| {
        let o = parse(list);
        let choices = o.choices(Route::Ordered).unwrap();
        (o.write_path(choices), o.label(choices))
    };
    let named = |path, name: &str| (path, name.to_owned());
    assert_eq!(path("profile=database"), named(WritePath::Direct, "database"));
    assert_eq!(path("profile=auto"), named(WritePath::Back, "auto"));
    assert_eq!(path("profile=database,profile=auto"), named(WritePath::Back, "auto"));
    assert_eq!(path("writethrough"), named(WritePath::Through, "ext4-ordered"));
    assert_eq!(path("profile=selective"), named(WritePath::Through, "selective"));
    // What is said decides, in any order, and then the name is not that of the promise.
    assert_eq!(path("writeback,profile=database"), named(WritePath::Back, "auto"));
    assert_eq!(path("profile=database,atomic_writes=asked"), named(WritePath::Through, "auto"));
    assert_eq!(
        path("profile=database,data=ordered").1,
        "data=ordered,record=range,commit_mode=checksum,checkpoint=lazy"
            .split(',')
            .map(|c| c.split_once('=').unwrap().1)
            .collect::<Vec<_>>()
            .join("+")
    );
    let refused = MountOptions::parse("profile=databse").unwrap_err().to_string();
    assert!(refused.contains("database") && refused.contains("rfj"), "{refused}");
}

#[test]
fn what_cannot_be_had_is_refused_by_name() {
    let unknown = |list: &str| MountOptions::parse(list).unwrap_err().to_string();
    assert_eq!(unknown("rw,frobnicate"), "unknown mount option \"frobnicate\"");
    assert_eq!(unknown("size=4"), "unknown mount option \"size=4\"");
    assert_eq!(unknown("noatme"), "unknown mount option \"noatme\"; did you mean noatime?");
    assert_eq!(unknown("comit=5"), "unknown mount option \"comit=5\"; did you mean commit?");
    for wrong in [
        "data=fast",
        "record=all",
        "checkpoint=regions",
        "profile=fast",
        "errors=ignore",
        "data_err=panic",
        "sb=32768",
        "resuid=x",
        "commit=x",
        "journal_dev=/dev/sdb",
    ] {
        match MountOptions::parse(wrong) {
            Err(OptionError::Bad { option, why }) => assert!(option == wrong && !why.is_empty()),
            other => panic!("{wrong}: {other:?}"),
        }
    }
}

#[test]
fn fakeroot_has_no_devices_and_no_set_user_id_programs_whatever_else_is_said() {
    for privileged in ["fakeroot,suid", "fakeroot,dev", "fakeroot,kernel", "fakeroot,nodev,suid"] {
        match MountOptions::parse(privileged) {
            Err(OptionError::Bad { option, .. }) => assert_eq!(option, "fakeroot", "{privileged}"),
            other => panic!("{privileged}: {other:?}"),
        }
    }
    let late = MountOptions::parse("suid,dev,fakeroot").unwrap();
    assert!(late.no_dev && late.no_suid && late.remounted("suid").is_err());
}

#[test]
fn symbolic_links_are_followed_as_the_last_word_says() {
    let no_symfollow = |list| MountOptions::parse(list).unwrap().no_symfollow;
    assert!(no_symfollow("symfollow,nosymfollow") && !no_symfollow("nosymfollow,symfollow"));
    let mounted = MountOptions::parse("nosymfollow").unwrap();
    assert!(!mounted.remounted("symfollow").unwrap().no_symfollow);
}

#[test]
fn each_option_of_the_table_has_the_fate_that_the_table_says() {
    for row in OPTIONS {
        for option in row.bare.iter().chain(row.valued) {
            // Options of NVRAM need the memory.
            let list = if option.starts_with("nvram_") { format!("nvram=/x,{option}") } else { (*option).to_owned() };
            match (row.fate, MountOptions::parse(&list)) {
                (Fate::Honoured(what), Ok(o)) => assert!(o.ignored.is_empty() && !what.is_empty(), "{option}"),
                (Fate::Quiet(_), Ok(o)) => assert_eq!(o, MountOptions::default(), "{option}"),
                (Fate::Ignored(why), Ok(o)) => assert_eq!(o.ignored, [((*option).to_owned(), why)]),
                (Fate::Refused(said), Err(OptionError::Bad { why, .. })) => assert_eq!(said, why),
                (fate, outcome) => panic!("{option}: {fate:?}, but {outcome:?}"),
            }
        }
    }
}

/// `QUIRE_BLESS=1 cargo test -p quire-mount docs_have_the_table` writes the table anew.
#[test]
fn docs_have_the_table_of_options() {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/mount.md");
    let page = std::fs::read_to_string(&path).unwrap();
    let (begin, end) = ("<!-- options -->\n", "<!-- /options -->");
    let (head, rest) = page.split_once(begin).unwrap();
    let (have, tail) = rest.split_once(end).unwrap();
    let mut want = String::from("\n| option | | |\n|---|---|---|\n");
    for row in OPTIONS {
        let (fate, what) = match row.fate {
            Fate::Honoured(what) => ("honoured", what),
            Fate::Quiet(what) => ("accepted", what),
            Fate::Ignored(what) => ("ignored, with a line", what),
            Fate::Refused(what) => ("refused", what),
        };
        let names: Vec<String> = row.bare.iter().chain(row.valued).map(|n| format!("`{n}`")).collect();
        want.push_str(&format!("| {} | {fate} | {what} |\n", names.join(", ")));
    }
    want.push('\n');
    if std::env::var_os("QUIRE_BLESS").is_some() {
        std::fs::write(&path, [head, begin, &want, end, tail].concat()).unwrap();
    } else {
        assert!(have == want, "docs/mount.md differs from the table; QUIRE_BLESS=1 writes it anew:\n{want}");
    }
}
