//! `quire top`: the figures of a mount, live.

mod view;

use super::stats::{NoStats, stats};
use crate::exit;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEventKind, KeyModifiers};
use std::io::IsTerminal;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};
use view::View;

/// Watch a mount: rates, latencies, what requests wait for, and bytes by reason, as they change.
///
/// Quit with q. Without a terminal, or with --once, the figures of one interval are printed as text.
#[derive(clap::Args)]
#[command(after_help = "Example:
  quire top /mnt
  quire top --once -d 5 /mnt")]
pub(crate) struct Args {
    /// A directory of the mount
    dir: PathBuf,
    /// Seconds from one look to the next
    #[arg(short, long, default_value = "1", value_name = "SECONDS", value_parser = clap::value_parser!(u16).range(1..=3600))]
    delay: u16,
    /// Print the figures of one interval, and end
    #[arg(long)]
    once: bool,
}

const NAME: &str = "top";

pub(crate) fn run(args: &Args) -> ExitCode {
    let done = if args.once || !std::io::stdout().is_terminal() {
        once(args).map(|text| exit::print(NAME, &text, 0, exit::SYSTEM))
    } else {
        live(args).map(|()| ExitCode::SUCCESS)
    };
    match done {
        Ok(code) => code,
        Err(Failed::Stats(e)) => exit::fail(NAME, exit::FAILURE, e),
        Err(Failed::Terminal(e)) => exit::fail(NAME, exit::SYSTEM, e),
    }
}

enum Failed {
    Stats(NoStats),
    Terminal(std::io::Error),
}

impl From<NoStats> for Failed {
    fn from(e: NoStats) -> Self {
        Failed::Stats(e)
    }
}

impl From<std::io::Error> for Failed {
    fn from(e: std::io::Error) -> Self {
        Failed::Terminal(e)
    }
}

/// The figures of one interval.
fn once(args: &Args) -> Result<String, Failed> {
    let (begun, first) = (Instant::now(), stats(&args.dir)?);
    std::thread::sleep(Duration::from_secs(args.delay.into()));
    let now = stats(&args.dir)?;
    Ok(View::new(&args.dir, &first, &now, begun.elapsed()).text())
}

fn live(args: &Args) -> Result<(), Failed> {
    let mut before = (Instant::now(), stats(&args.dir)?);
    let mut terminal = ratatui::try_init()?;
    let done = loop {
        let now = match stats(&args.dir) {
            Ok(now) => (Instant::now(), now),
            Err(e) => break Err(e.into()),
        };
        let view = View::new(&args.dir, &before.1, &now.1, now.0 - before.0);
        before = now;
        if let Err(e) = terminal.draw(|frame| view.draw(frame)) {
            break Err(e.into());
        }
        match quits(Duration::from_secs(args.delay.into())) {
            Ok(false) => {}
            Ok(true) => break Ok(()),
            Err(e) => break Err(e.into()),
        }
    };
    ratatui::try_restore()?;
    done
}

/// Waits for a key for so long. True if it means the end.
fn quits(timeout: Duration) -> std::io::Result<bool> {
    let until = Instant::now() + timeout;
    while event::poll(until.saturating_duration_since(Instant::now()))? {
        match event::read()? {
            Event::Key(key) if key.kind == KeyEventKind::Press => {
                let control_c = key.code == KeyCode::Char('c') && key.modifiers.contains(KeyModifiers::CONTROL);
                if control_c || matches!(key.code, KeyCode::Char('q') | KeyCode::Esc) {
                    return Ok(true);
                }
            }
            Event::Resize(..) => return Ok(false),
            _ => {}
        }
    }
    Ok(false)
}
