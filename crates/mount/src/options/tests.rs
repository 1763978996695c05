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
    for wrong in ["offset=", "offset=x", "offset=1Q", "offset=99999999999T", "cache_size=1K"] {
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
fn what_cannot_be_had_is_refused_by_name() {
    assert_eq!(MountOptions::parse("rw,frobnicate"), Err(OptionError::Unknown("frobnicate".into())));
    assert_eq!(MountOptions::parse("size=4"), Err(OptionError::Unknown("size=4".into())));
    for wrong in [
        "nobarrier",
        "barrier=0",
        "data=fast",
        "record=all",
        "checkpoint=regions",
        "profile=fast",
        "errors=ignore",
        "data_err=panic",
        "sb=32768",
        "journal_async_commit",
        "resuid=x",
        "commit=x",
        "usrquota",
        "remount",
        "journal_dev=/dev/sdb",
    ] {
        match MountOptions::parse(wrong) {
            Err(OptionError::Bad { option, why }) => assert!(option == wrong && !why.is_empty()),
            other => panic!("{wrong}: {other:?}"),
        }
    }
}
