//! Figures of a mount: latencies, what Prometheus gets, and slow requests in the log.

use crate::common::{Place, needs_mounts, ok, quire, said, wait_until};
use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

fn json(dir: &str) -> serde_json::Value {
    serde_json::from_str(&ok(&mut quire(&["stats", "--json", dir]))).unwrap()
}

/// Writes and fsyncs so many times.
fn sync_often(path: &std::path::Path, times: usize) {
    let mut file = fs::File::create(path).unwrap();
    for _ in 0..times {
        file.write_all(&[7; 100]).unwrap();
        file.sync_all().unwrap();
    }
}

/// A server that ends with the test.
struct Serving(Child);

impl Drop for Serving {
    fn drop(&mut self) {
        self.0.kill().ok();
        self.0.wait().ok();
    }
}

impl Serving {
    /// Returns also what it says that it serves on.
    fn start(to: &str, dirs: &[&str]) -> (Self, String) {
        let mut child = quire(&["stats", "--serve", to]).args(dirs).stderr(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        let stderr = child.stderr.take().unwrap();
        std::io::BufRead::read_line(&mut std::io::BufReader::new(stderr), &mut line).unwrap();
        (Serving(child), line)
    }
}

fn get(mut stream: impl Read + Write, path: &str) -> String {
    write!(stream, "GET {path} HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

#[test]
fn each_fsync_and_request_is_in_a_histogram_once() {
    needs_mounts();
    let place = Place::new("32M", &[]);
    let m = place.mount("");
    let before = json(m.dir());
    sync_often(&m.path("f"), 20);
    let after = json(m.dir());
    let since = |path: &[&str]| {
        let of = |v: &serde_json::Value| path.iter().fold(v.clone(), |v, key| v[*key].clone()).as_u64().unwrap_or(0);
        of(&after) - of(&before)
    };
    assert_eq!(since(&["latency", "fsync", "count"]), 20);
    assert_eq!(since(&["request_latency", "fsync", "count"]), 20);
    assert_eq!(since(&["latency", "commit", "count"]), since(&["journal", "transactions"]));
    assert_eq!(since(&["devices", "fs", "latency", "flush", "count"]), since(&["devices", "fs", "flushes", "count"]));
    let fsync = &after["latency"]["fsync"];
    let at = |name: &str| fsync[name].as_u64().unwrap();
    assert!(0 < at("p50_nanos") && at("p50_nanos") <= at("p99_nanos") && at("p99_nanos") <= at("max_nanos"), "{fsync}");
    for (kind, n) in after["requests_by_kind"].as_object().unwrap() {
        let took = after["request_latency"][kind]["count"].as_u64().unwrap_or(0);
        assert!(n.as_u64().unwrap() - took <= 1, "{kind}: {n} begun, {took} over");
    }
    assert!(after["cache"]["hits"].as_u64() > Some(0) && after["waited_nanos"]["flush"].as_u64() > Some(0));
    let text = ok(&mut quire(&["top", "--once", m.dir()]));
    assert!(text.contains("log: ") && text.contains("requests wait for"), "{text}");
    m.unmount();
}

#[test]
fn prometheus_gets_all_mounts_over_tcp_and_a_unix_socket() {
    needs_mounts();
    let place = Place::new("32M", &[]);
    let m = place.mount("");
    sync_often(&m.path("f"), 5);
    let (_tcp, line) = Serving::start("127.0.0.1:0", &[m.dir(), "/proc"]);
    let address = line.split("http://").nth(1).and_then(|a| a.split('/').next()).expect("an address").to_owned();
    // Silent clients and one that sends half a request are nobody's business.
    let mut idle: Vec<_> = (0..8).map(|_| TcpStream::connect(&address).unwrap()).collect();
    idle[0].write_all(b"GET /met").unwrap();
    let start = Instant::now();
    let answer = get(TcpStream::connect(&address).unwrap(), "/metrics");
    assert!(start.elapsed() < Duration::from_secs(4), "{:?}", start.elapsed());
    assert!(answer.starts_with("HTTP/1.1 200 OK\r\n") && answer.contains("version=0.0.4"), "{answer}");
    let count = format!("\nquire_fsync_duration_seconds_count{{mount=\"{}\"}} 5\n", m.dir());
    assert!(answer.contains(&count), "{answer}");
    assert!(answer.contains("\nquire_up{mount=\"/proc\"} 0\n"), "{answer}");
    assert!(get(TcpStream::connect(&address).unwrap(), "/other").starts_with("HTTP/1.1 404"));
    let long = format!("/{}", "x".repeat(100_000));
    let mut stream = TcpStream::connect(&address).unwrap();
    stream.write_all(format!("GET {long}").as_bytes()).ok();
    let mut refused = String::new();
    stream.read_to_string(&mut refused).ok();
    assert!(!refused.contains("200 OK"), "{refused}");
    let socket = place.path("metrics.sock");
    let (_unix, _) = Serving::start(crate::common::text(&socket), &[m.dir()]);
    assert!(get(UnixStream::connect(&socket).unwrap(), "/metrics").contains(&count));
    assert_eq!(ok(&mut quire(&["stats", "--prometheus", m.dir()])).matches(count.trim()).count(), 1);
    let (code, words) = said(&mut quire(&["stats", "--serve", "256.0.0.1:1", m.dir()]));
    assert!(code == 2 && words.contains("256.0.0.1:1"), "{code}: {words}");
    m.unmount();
}

#[test]
fn a_slow_request_is_logged_with_what_it_waited_for_and_a_quick_one_is_not() {
    needs_mounts();
    let place = Place::new("32M", &[]);
    let log = || fs::read_to_string(place.path("log")).unwrap_or_default();
    let m = place.mount("slow_ms=1");
    // A request of a megabyte takes more than that with its flush, sooner or later.
    wait_until("a slow request", || {
        fs::write(m.path("f"), vec![1; 4 << 20]).unwrap();
        fs::File::open(m.path("f")).unwrap().sync_all().unwrap();
        log().contains("slow: fsync of inode ")
    });
    assert!(json(m.dir())["queue"]["slow"].as_u64() > Some(0));
    let line = log().lines().find(|l| l.contains("slow: fsync")).unwrap().to_owned();
    // Reasons of less than 0.1 ms are not told, and a flush may take less here.
    let of_device = ["flush", "device_write"].iter().any(|reason| line.contains(reason));
    assert!(line.contains(" by process ") && line.contains(" ms: waited for ") && of_device, "{line}");
    m.unmount();
    fs::remove_file(place.path("log")).unwrap();
    let m = place.mount("slow_ms=0");
    fs::write(m.path("f"), vec![1; 4 << 20]).unwrap();
    fs::File::open(m.path("f")).unwrap().sync_all().unwrap();
    assert!(!log().contains("slow:"), "{}", log());
    m.unmount();
}
