//! MariaDB on a directory.

use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use super::make_own_dir;
use crate::cmd::{command, run, text, wait_until};

/// Programs without which there is none.
pub const NEEDS: &[&str] = &["sysbench", "mariadbd", "mariadb-install-db", "mariadb-admin", "innochecksum"];

/// The user whose it is.
const USER: &str = "mysql";
/// How long recovery and start may take.
const START_LIMIT: Duration = Duration::from_secs(120);

/// A data directory, and the directory of the socket.
#[derive(Debug)]
pub struct MariaDb {
    data: PathBuf,
    sockets: PathBuf,
}

/// Why there can be no server here, if so.
#[must_use]
pub fn unavailable() -> Option<String> {
    super::missing(NEEDS).map(|tool| format!("no {tool}"))
}

impl MariaDb {
    /// A server on `data`, whose socket is in `sockets`, which is made if it is not there.
    ///
    /// # Errors
    /// The user is missing.
    pub fn new(data: &Path, sockets: &Path) -> Result<Self> {
        if !sockets.exists() {
            make_own_dir(sockets, USER)?;
        }
        Ok(MariaDb { data: data.to_owned(), sockets: sockets.to_owned() })
    }

    fn data_option(&self) -> String {
        format!("--datadir={}", text(&self.data))
    }

    fn socket_option(&self) -> String {
        format!("--socket={}", text(&self.sockets.join("s")))
    }

    /// Makes the data directory.
    ///
    /// # Errors
    /// mariadb-install-db fails.
    pub fn init(&self) -> Result<()> {
        make_own_dir(&self.data, USER)?;
        let method = "--auth-root-authentication-method=normal";
        let mut c = command("mariadb-install-db");
        c.args(["--no-defaults", &format!("--user={USER}"), &self.data_option(), method, "--skip-test-db"]);
        run(&mut c).map(drop)
    }

    /// Takes a data directory that has been copied to here.
    ///
    /// # Errors
    /// The user is missing.
    pub fn adopt(&self) -> Result<()> {
        super::own(&self.data, USER)
    }

    /// Starts the server with `options` and waits until it answers; recovery comes first.
    ///
    /// # Errors
    /// It does not start; the end of what it said is in the error.
    pub fn start(&self, options: &[&str]) -> Result<Running> {
        let log = self.sockets.join("log");
        let said = std::fs::File::create(&log)?;
        let mut server = command("mariadbd");
        server.args(["--no-defaults", &format!("--user={USER}"), &self.data_option(), &self.socket_option()]);
        server.args(["--skip-networking", "--skip-log-bin"]).args(options).current_dir("/");
        let server = server.stdin(Stdio::null()).stdout(said.try_clone()?).stderr(said).spawn();
        let mut running = Running { server: server.context("mariadbd")?, socket: self.socket_option() };
        let mut ended = None;
        let mut answers = false;
        wait_until(START_LIMIT, || {
            ended = running.server.try_wait().ok().flatten();
            answers = running.answers();
            ended.is_some() || answers
        });
        ensure!(answers && ended.is_none(), "MariaDB does not answer:\n{}", tail(&log));
        Ok(running)
    }
}

/// The end of a log.
fn tail(log: &Path) -> String {
    let said = std::fs::read_to_string(log).unwrap_or_default();
    let lines: Vec<&str> = said.lines().filter(|l| l.contains("ERROR") || l.contains("InnoDB")).collect();
    lines[lines.len().saturating_sub(12)..].join("\n")
}

/// A server that runs. Dropping it shuts it down.
#[derive(Debug)]
pub struct Running {
    server: Child,
    socket: String,
}

impl Running {
    fn answers(&self) -> bool {
        let mut ping = command("mariadb-admin");
        ping.args(["--no-defaults", &self.socket, "ping"]).output().is_ok_and(|o| o.status.success())
    }

    /// Runs an SQL statement.
    ///
    /// # Errors
    /// It fails.
    pub fn query(&self, sql: &str) -> Result<String> {
        run(command("mariadb").args(["--no-defaults", &self.socket, "-u", "root", "-N", "-B", "-e", sql]))
    }

    /// Runs sysbench's `oltp_write_only` with `args`.
    ///
    /// # Errors
    /// It fails.
    pub fn sysbench(&self, args: &[&str]) -> Result<String> {
        let socket = self.socket.replace("--socket", "--mysql-socket");
        let mut c = command("sysbench");
        run(c.args(["oltp_write_only", &socket, "--mysql-user=root", "--db-driver=mysql"]).args(args))
    }

    fn end_by(&mut self, signal: rustix::process::Signal) {
        if let Some(pid) = i32::try_from(self.server.id()).ok().and_then(rustix::process::Pid::from_raw) {
            rustix::process::kill_process(pid, signal).ok();
        }
    }

    /// Ends the server in order.
    ///
    /// # Errors
    /// It ends with an error.
    pub fn stop(mut self) -> Result<()> {
        self.end_by(rustix::process::Signal::TERM);
        let status = self.server.wait()?;
        ensure!(status.success(), "mariadbd ended with {status}");
        Ok(())
    }

    /// Ends the server at once, as by a crash.
    pub fn kill(mut self) {
        self.end_by(rustix::process::Signal::KILL);
        self.server.wait().ok();
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Ok(None) = self.server.try_wait() {
            self.end_by(rustix::process::Signal::TERM);
            self.server.wait().ok();
        }
    }
}
