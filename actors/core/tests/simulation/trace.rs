//! The last messages of a world, which are formatted only when they are printed.

use std::collections::VecDeque;
use std::fmt::Write as _;

use model::arm::{ArmAnswer, ArmRequest};
use pool_core::route::Delivery;

use crate::replica::Actor;

/// Number of messages that are kept.
const CAPACITY: usize = 40;
/// Number of requested messages that are kept.
const CAPACITY_ABOUT: usize = 400;
/// Longest message, in characters.
const MAX_LINE: usize = 240;

/// An event in the world.
pub enum Entry {
    /// Text.
    Words(String),
    /// A machine of a process received an input.
    Received(usize, Actor, Box<Delivery>),
    /// A request reached ARM, and its answer arrives at this time.
    Called(Box<ArmRequest>, u64, Box<ArmAnswer>),
}

impl Entry {
    fn text_of(&self) -> String {
        match self {
            Entry::Words(words) => words.clone(),
            Entry::Received(process, who, what) => format!("{process} {who:?} <- {what:?}"),
            Entry::Called(request, at, answer) => {
                format!("arm <- {request:?}; at {:.6}: {answer:?}", *at as f64 / 1e6)
            }
        }
    }
}

/// The last messages; with `SIMULATION_ABOUT=text`, those that contain the text.
pub struct Trace {
    entries: VecDeque<(u64, Entry)>,
    about: Option<String>,
}

impl Trace {
    /// Creates an empty trace.
    pub fn new() -> Trace {
        Trace { entries: VecDeque::new(), about: std::env::var("SIMULATION_ABOUT").ok() }
    }

    /// Adds an entry.
    pub fn record(&mut self, now: u64, entry: Entry) {
        let mut capacity = CAPACITY;
        let mut entry = entry;
        if let Some(about) = &self.about {
            let words = entry.text_of();
            if !words.contains(about) {
                return;
            }
            (capacity, entry) = (CAPACITY_ABOUT, Entry::Words(words));
        }
        if self.entries.len() >= capacity {
            self.entries.pop_front();
        }
        self.entries.push_back((now, entry));
    }

    /// Formats the entries, oldest first.
    pub fn text(&self) -> String {
        let mut text = String::new();
        for (at, entry) in &self.entries {
            let words: String = entry.text_of().replace("LbName", "").replace("PoolName", "");
            let longest = if self.about.is_some() { usize::MAX } else { MAX_LINE };
            let short: String = words.chars().take(longest).collect();
            writeln!(text, "{:>12.6}  {short}", *at as f64 / 1e6).expect("a string takes every write");
        }
        text
    }
}
