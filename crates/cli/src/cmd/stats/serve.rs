//! `quire stats --serve`: GET /metrics over HTTP.
//!
//! *Guarantees*: clients are bounded in number, in bytes and in time: one that is slow, silent or sends nonsense delays
//! no other. Only loopback is listened to unless the user names another address.

use crate::exit;
use std::io::{self, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::FileTypeExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// Bytes of a request's head, and its header lines, at most.
const MAX_HEAD_BYTES: usize = 8 << 10;
const MAX_HEADERS: usize = 64;
/// Clients at once.
const MAX_CLIENTS: usize = 16;
/// How long a client may take to send its request, and to take the answer.
const CLIENT_PATIENCE: Duration = Duration::from_secs(5);

/// `metrics` makes the page anew for each request.
pub(super) fn run(to: &str, metrics: impl Fn() -> String + Send + Sync + 'static) -> ExitCode {
    let failed = |e: io::Error| exit::fail("stats", exit::SYSTEM, format_args!("{to}: {e}"));
    let served = Arc::new(Served { metrics: Box::new(metrics), clients: AtomicUsize::new(0) });
    if to.contains('/') {
        return match unix(Path::new(to)) {
            Ok(socket) => {
                exit::tell("stats", format_args!("serving /metrics on {to}"));
                accept(&served, || socket.accept().map(|(stream, _)| stream))
            }
            Err(e) => failed(e),
        };
    }
    let address = if to.parse::<u16>().is_ok() { format!("127.0.0.1:{to}") } else { to.to_owned() };
    match TcpListener::bind(&address).and_then(|socket| Ok((socket.local_addr()?, socket))) {
        Ok((at, socket)) => {
            exit::tell("stats", format_args!("serving http://{at}/metrics"));
            accept(&served, || socket.accept().map(|(stream, _)| stream))
        }
        Err(e) => failed(e),
    }
}

/// Listens on a path. A socket that nobody listens to any more is replaced.
fn unix(path: &Path) -> io::Result<UnixListener> {
    let is_socket = path.symlink_metadata().is_ok_and(|m| m.file_type().is_socket());
    if is_socket && UnixStream::connect(path).is_err() {
        std::fs::remove_file(path)?;
    }
    UnixListener::bind(path)
}

/// A connection of either kind.
trait Stream: Read + Write + Send + 'static {
    fn set_patience(&self, d: Duration) -> io::Result<()>;
}

impl Stream for TcpStream {
    fn set_patience(&self, d: Duration) -> io::Result<()> {
        self.set_read_timeout(Some(d))?;
        self.set_write_timeout(Some(d))
    }
}

impl Stream for UnixStream {
    fn set_patience(&self, d: Duration) -> io::Result<()> {
        self.set_read_timeout(Some(d))?;
        self.set_write_timeout(Some(d))
    }
}

/// What is served.
struct Served {
    metrics: Box<dyn Fn() -> String + Send + Sync>,
    clients: AtomicUsize,
}

fn accept<S: Stream>(served: &Arc<Served>, mut next: impl FnMut() -> io::Result<S>) -> ExitCode {
    loop {
        // Out of descriptors, or a client that has gone already.
        let Ok(mut stream) = next() else {
            std::thread::sleep(Duration::from_millis(100));
            continue;
        };
        if served.clients.fetch_add(1, Ordering::SeqCst) >= MAX_CLIENTS {
            served.clients.fetch_sub(1, Ordering::SeqCst);
            // The kernel takes so little at once, or the client does without.
            stream.set_patience(Duration::from_millis(1)).ok();
            stream.write_all(&answer("503 Service Unavailable", "too many clients\n")).ok();
            continue;
        }
        let theirs = served.clone();
        let serve = move || {
            theirs.serve(&mut stream).ok();
            theirs.clients.fetch_sub(1, Ordering::SeqCst);
        };
        if std::thread::Builder::new().spawn(serve).is_err() {
            served.clients.fetch_sub(1, Ordering::SeqCst);
        }
    }
}

impl Served {
    fn serve(&self, stream: &mut impl Stream) -> io::Result<()> {
        let text = match head(stream)? {
            Request::Get(path) => self.reply(&path),
            Request::Other => answer("405 Method Not Allowed", "only GET\n"),
            Request::Bad => answer("400 Bad Request", "no request\n"),
        };
        send(stream, &text)
    }

    fn reply(&self, path: &str) -> Vec<u8> {
        match path.split('?').next() {
            Some("/metrics") => answer("200 OK", &(self.metrics)()),
            Some("/") => answer("200 OK", "Quire's figures for Prometheus are at /metrics\n"),
            _ => answer("404 Not Found", "no such page\n"),
        }
    }
}

enum Request {
    Get(String),
    Other,
    Bad,
}

/// Reads the head of a request, by a deadline for all of it.
fn head(stream: &mut impl Stream) -> io::Result<Request> {
    let deadline = Instant::now() + CLIENT_PATIENCE;
    let mut bytes = Vec::new();
    let mut part = [0; 1024];
    while bytes.len() < MAX_HEAD_BYTES {
        stream.set_patience(left(deadline)?)?;
        let n = stream.read(&mut part)?;
        if n == 0 {
            return Ok(Request::Bad);
        }
        bytes.extend_from_slice(&part[..n]);
        let mut headers = [httparse::EMPTY_HEADER; MAX_HEADERS];
        let mut request = httparse::Request::new(&mut headers);
        match request.parse(&bytes) {
            Ok(httparse::Status::Partial) => {}
            Ok(httparse::Status::Complete(_)) => {
                return Ok(match (request.method, request.path) {
                    (Some("GET"), Some(path)) => Request::Get(path.to_owned()),
                    _ => Request::Other,
                });
            }
            Err(_) => return Ok(Request::Bad),
        }
    }
    Ok(Request::Bad)
}

/// Sends all of it, by a deadline.
fn send(stream: &mut impl Stream, mut text: &[u8]) -> io::Result<()> {
    let deadline = Instant::now() + CLIENT_PATIENCE;
    while !text.is_empty() {
        stream.set_patience(left(deadline)?)?;
        match stream.write(text)? {
            0 => return Err(io::ErrorKind::WriteZero.into()),
            n => text = &text[n..],
        }
    }
    Ok(())
}

fn left(deadline: Instant) -> io::Result<Duration> {
    let left = deadline.saturating_duration_since(Instant::now());
    if left.is_zero() { Err(io::ErrorKind::TimedOut.into()) } else { Ok(left) }
}

fn answer(status: &str, body: &str) -> Vec<u8> {
    let kind = "text/plain; version=0.0.4; charset=utf-8";
    let length = body.len();
    format!("HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{body}")
        .into_bytes()
}
