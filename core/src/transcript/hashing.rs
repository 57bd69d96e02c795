//! SHA-256 of what is read, on a core of its own: the reader goes on while it is computed.

use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::JoinHandle;

use sha2::{Digest, Sha256};

/// How many pieces may wait to be hashed; with the reader's pieces of 256 KiB, 1 MiB.
const WAITING: usize = 4;
/// Below this a thread costs more than it saves.
const WORTH_A_THREAD: u64 = 1 << 20;

/// Hashes pieces in order.
pub(crate) enum Hashing {
    /// In place.
    Here(Sha256),
    /// On a thread.
    Aside(Aside),
}

pub(crate) struct Aside {
    pieces: SyncSender<Vec<u8>>,
    /// Buffers that are free again.
    free: Receiver<Vec<u8>>,
    worker: JoinHandle<[u8; 32]>,
}

impl Hashing {
    /// For input of about this many bytes.
    pub(crate) fn of(bytes: u64) -> Self {
        if bytes < WORTH_A_THREAD {
            return Self::Here(Sha256::new());
        }
        let (pieces, work) = sync_channel::<Vec<u8>>(WAITING);
        let (give_back, free) = sync_channel(WAITING);
        let hash = move || {
            let mut hasher = Sha256::new();
            for piece in work {
                hasher.update(&piece);
                // Nobody has to take it back.
                drop(give_back.try_send(piece));
            }
            hasher.finalize().into()
        };
        match std::thread::Builder::new().name("hashing".to_owned()).spawn(hash) {
            Ok(worker) => Self::Aside(Aside { pieces, free, worker }),
            Err(_) => Self::Here(Sha256::new()),
        }
    }

    pub(crate) fn update(&mut self, piece: &[u8]) {
        match self {
            Self::Here(hasher) => hasher.update(piece),
            Self::Aside(aside) => {
                let mut buffer = aside.free.try_recv().unwrap_or_default();
                buffer.clear();
                buffer.extend_from_slice(piece);
                // The worker ends only once this sender is gone.
                drop(aside.pieces.send(buffer));
            }
        }
    }

    /// The digest; nothing if the thread died.
    pub(crate) fn finish(self) -> Option<[u8; 32]> {
        match self {
            Self::Here(hasher) => Some(hasher.finalize().into()),
            Self::Aside(Aside { pieces, worker, .. }) => {
                drop(pieces);
                worker.join().ok()
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_ways_give_the_same_digest() {
        let pieces: Vec<Vec<u8>> = (0..40_u8).map(|n| vec![n; 100_000 + usize::from(n)]).collect();
        let digest = |mut hashing: Hashing| {
            for piece in &pieces {
                hashing.update(piece);
            }
            hashing.finish().unwrap()
        };
        assert!(matches!(Hashing::of(4 << 20), Hashing::Aside(_)));
        assert_eq!(digest(Hashing::of(0)), digest(Hashing::of(4 << 20)));
        assert_eq!(Hashing::of(4 << 20).finish(), Hashing::of(0).finish(), "of nothing");
    }
}
