//! PostgreSQL on a directory.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use super::make_own_dir;
use crate::cmd::{command, run, text};

/// Programs without which there is none. The server's own are looked for where distributions put them.
pub const NEEDS: &[&str] = &["pgbench", "runuser"];

/// The user whose it is; the server refuses to run as root.
const USER: &str = "postgres";
/// Part of the socket's name; nothing listens on the network.
const PORT: &str = "5499";

/// A cluster: the data directory, and the directory of the socket.
#[derive(Debug)]
pub struct Postgres {
    data: PathBuf,
    sockets: PathBuf,
}

/// How a server ends.
#[derive(Clone, Copy, Debug)]
pub enum Stop {
    /// With a checkpoint, so that the cluster is clean.
    Fast,
    /// At once, as by a crash.
    Immediate,
}

/// The newest directory of PostgreSQL's programs, on Debian outside of PATH.
fn programs() -> Result<PathBuf> {
    let versions = fs::read_dir("/usr/lib/postgresql").context("PostgreSQL's server")?;
    let mut found: Vec<PathBuf> = versions.filter_map(|v| Some(v.ok()?.path().join("bin"))).collect();
    found.sort();
    found.pop().context("PostgreSQL's server")
}

/// Why there can be no server here, if so.
#[must_use]
pub fn unavailable() -> Option<String> {
    let tool = super::missing(NEEDS).map(|tool| format!("no {tool}"));
    tool.or_else(|| programs().is_err().then(|| "no PostgreSQL".to_owned()))
}

fn as_user(program: &Path, args: &[&str]) -> Result<String> {
    run(command("runuser").args(["-u", USER, "--", text(program)]).args(args).current_dir("/"))
}

impl Postgres {
    /// A cluster in `data`, whose socket is in `sockets`, which is made if it is not there.
    ///
    /// # Errors
    /// The user is missing.
    pub fn new(data: &Path, sockets: &Path) -> Result<Self> {
        if !sockets.exists() {
            make_own_dir(sockets, USER)?;
        }
        Ok(Postgres { data: data.to_owned(), sockets: sockets.to_owned() })
    }

    /// Makes the cluster, with `args` for initdb and lines for postgresql.conf.
    ///
    /// # Errors
    /// initdb fails.
    pub fn init(&self, args: &[&str], settings: &str) -> Result<()> {
        make_own_dir(&self.data, USER)?;
        as_user(&programs()?.join("initdb"), &[&["-D", text(&self.data), "-A", "trust", "--no-sync"], args].concat())?;
        let conf = self.data.join("postgresql.conf");
        let ours =
            format!("port={PORT}\nlisten_addresses=''\nunix_socket_directories='{}'\n{settings}", text(&self.sockets));
        Ok(fs::write(&conf, fs::read_to_string(&conf)? + &ours)?)
    }

    /// Takes a cluster that has been copied to here.
    ///
    /// # Errors
    /// The user is missing.
    pub fn adopt(&self) -> Result<()> {
        super::own(&self.data, USER)
    }

    /// Starts the server and waits until it answers; recovery comes first. `settings` are `name=value`.
    ///
    /// # Errors
    /// It does not start; the end of what it said is in the error.
    pub fn start(&self, settings: &[&str]) -> Result<Running<'_>> {
        let log = self.sockets.join("log");
        let settings: String = settings.iter().map(|s| format!(" -c {s}")).collect();
        // The server keeps our pipes otherwise.
        let script = format!(
            "exec {} -D {} -w -t 120 -l {} -o '{settings}' start >/dev/null 2>&1",
            text(&programs()?.join("pg_ctl")),
            text(&self.data),
            text(&log)
        );
        fs::remove_file(&log).or_else(|e| if log.exists() { Err(e) } else { Ok(()) })?;
        let mut command = command("runuser");
        let started = run(command.args(["-u", USER, "--", "sh", "-c", &script]).current_dir("/"));
        started.with_context(|| {
            let said = fs::read_to_string(&log).unwrap_or_default();
            let lines: Vec<&str> = said.lines().collect();
            lines[lines.len().saturating_sub(12)..].join("\n")
        })?;
        Ok(Running { cluster: self, over: false })
    }

    /// Runs one of PostgreSQL's programs on the stopped cluster.
    ///
    /// # Errors
    /// It fails.
    pub fn offline(&self, program: &str, args: &[&str]) -> Result<String> {
        as_user(&programs()?.join(program), &[args, &["-D", text(&self.data)]].concat())
    }
}

/// A server that runs. Dropping it ends that at once.
#[derive(Debug)]
pub struct Running<'c> {
    cluster: &'c Postgres,
    over: bool,
}

impl Running<'_> {
    /// Runs one of PostgreSQL's clients.
    ///
    /// # Errors
    /// It fails.
    pub fn client(&self, program: &str, args: &[&str]) -> Result<String> {
        let at = ["-h", text(&self.cluster.sockets), "-p", PORT];
        as_user(&programs()?.join(program), &[&at[..], args].concat())
    }

    /// The answer to a query, unadorned.
    ///
    /// # Errors
    /// It fails.
    pub fn query(&self, sql: &str) -> Result<String> {
        Ok(self.client("psql", &["-X", "-A", "-t", "-q", "-d", "postgres", "-c", sql])?.trim().to_owned())
    }

    /// Ends the server.
    ///
    /// # Errors
    /// It does not end.
    pub fn stop(mut self, how: Stop) -> Result<()> {
        self.over = true;
        self.end(how)
    }

    fn end(&self, how: Stop) -> Result<()> {
        let how = match how {
            Stop::Fast => "fast",
            Stop::Immediate => "immediate",
        };
        let data = text(&self.cluster.data);
        as_user(&programs()?.join("pg_ctl"), &["-D", data, "-m", how, "-w", "-t", "120", "stop"]).map(drop)
    }
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        if !self.over {
            // After a failure, which is told already.
            self.end(Stop::Immediate).ok();
        }
    }
}
