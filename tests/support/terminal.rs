//! A pseudo-terminal with an operator, for programs that ask for input.

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::process::Stdio;

use rustix::pty::{OpenptFlags, grantpt, ioctl_tiocgptpeer, openpt, unlockpt};
use tokio::process::{Child, Command};
use tokio::sync::watch;

use super::{TEST_TIMEOUT, eventually};

/// Ctrl-D, which ends the input at the beginning of a line.
pub const END_OF_INPUT: &str = "\u{4}";

/// The operator's side of a terminal: keyboard and screen.
pub struct Terminal {
    keyboard: File,
    screen: watch::Receiver<String>,
}

impl Terminal {
    /// Starts a program whose standard input, output and error are a new terminal.
    pub fn start(mut command: Command) -> (Self, Child) {
        let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
        let controller = openpt(flags).expect("a terminal");
        grantpt(&controller).expect("it is ours");
        unlockpt(&controller).expect("it is ours");
        let side = || Stdio::from(ioctl_tiocgptpeer(&controller, flags).expect("its other side"));
        command.stdin(side()).stdout(side()).stderr(side());
        let child = command.spawn().expect("the binary under test");
        let keyboard = File::from(controller);
        let mut shown = keyboard.try_clone().expect("a second handle");
        let (screen, reading) = watch::channel(String::new());
        // The read fails when the last program has closed its side; `command` holds this process's copies.
        std::thread::spawn(move || {
            let mut bytes = [0; 4096];
            while let Ok(count @ 1..) = shown.read(&mut bytes) {
                screen.send_modify(|text| text.push_str(&String::from_utf8_lossy(&bytes[..count])));
            }
        });
        drop(command);
        (Self { keyboard, screen: reading }, child)
    }

    /// Returns the text on the screen.
    fn shown(&self) -> String {
        self.screen.borrow().clone()
    }

    /// Waits until the screen shows a text.
    pub async fn shows(&self, text: &str) {
        eventually(&format!("the terminal shows {text:?}"), TEST_TIMEOUT, || async {
            let shown = self.shown();
            if shown.contains(text) { Ok(()) } else { Err(shown) }
        })
        .await;
    }

    /// Returns the text of the screen after the last program has ended.
    pub async fn ended(mut self) -> String {
        while self.screen.changed().await.is_ok() {}
        self.shown()
    }

    /// Types these keys.
    pub fn types(&mut self, keys: &str) {
        self.keyboard.write_all(keys.as_bytes()).expect("the process reads");
    }
}
