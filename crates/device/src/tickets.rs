//! Outcomes that wait to be collected.

use crate::io::Ticket;
use crate::sync::{Mutex, lock};
use std::collections::HashMap;

/// What each open ticket stands for.
pub struct Tickets<T>(Mutex<(u64, HashMap<u64, T>)>);

impl<T> Default for Tickets<T> {
    fn default() -> Self {
        Tickets(Mutex::new((0, HashMap::new())))
    }
}

impl<T> Tickets<T> {
    /// Opens a ticket for `value`.
    pub fn put(&self, value: T) -> Ticket {
        let mut table = lock(&self.0);
        table.0 += 1;
        let id = table.0;
        table.1.insert(id, value);
        Ticket(id)
    }

    /// What a ticket stands for.
    ///
    /// # Panics
    /// If it was taken before.
    pub fn take(&self, ticket: &Ticket) -> T {
        lock(&self.0).1.remove(&ticket.0).expect("a ticket is waited for once")
    }
}
