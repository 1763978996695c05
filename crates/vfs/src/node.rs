//! What all handles of one file have in common: its locks and its shared memory, found by inode number.

use crate::locks::FileLocks;
use crate::shm::SharedMemory;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};

/// The shared part of a file's handles.
#[derive(Default)]
pub struct Node {
    pub(crate) locks: FileLocks,
    pub(crate) shm: SharedMemory,
}

/// The files of one file system that are open.
#[derive(Default)]
pub struct Nodes(Mutex<HashMap<u32, Weak<Node>>>);

impl Nodes {
    /// The shared part of a file's handles, by the number of its inode, which the caller keeps in use.
    pub fn of(&self, ino: u32) -> Arc<Node> {
        let mut nodes = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(node) = nodes.get(&ino).and_then(Weak::upgrade) {
            return node;
        }
        nodes.retain(|_, node| node.strong_count() > 0);
        let node = Arc::new(Node::default());
        nodes.insert(ino, Arc::downgrade(&node));
        node
    }
}
