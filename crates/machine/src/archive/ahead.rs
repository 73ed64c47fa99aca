//! Unpacking on a thread of its own, ahead of who reads.

use std::io::{self, Read};
use std::sync::mpsc::{Receiver, sync_channel};
use std::thread;

/// Blocks unpacked ahead and their length: enough to hide how unevenly the two sides go.
const BLOCKS: usize = 4;
const BLOCK: usize = 256 << 10;

/// Lets `use_` read the stream, which is unpacked meanwhile.
pub(super) fn unpacked<R>(mut stream: impl Read + Send, use_: impl FnOnce(Unpacked) -> R) -> R {
    thread::scope(|scope| {
        let (sender, receiver) = sync_channel(BLOCKS);
        scope.spawn(move || {
            loop {
                let block = next(&mut stream);
                let is_last = !matches!(&block, Ok(block) if !block.is_empty());
                // Nobody receives once the reader has met what it does not like.
                if sender.send(block).is_err() || is_last {
                    break;
                }
            }
        });
        use_(Unpacked { receiver, block: Vec::new(), at: 0, done: false })
    })
}

/// The next block, full unless it is the last; empty at the end.
fn next(stream: &mut impl Read) -> io::Result<Vec<u8>> {
    let mut block = Vec::with_capacity(BLOCK);
    stream.by_ref().take(BLOCK as u64).read_to_end(&mut block)?;
    Ok(block)
}

/// What has been unpacked, in order.
pub(super) struct Unpacked {
    receiver: Receiver<io::Result<Vec<u8>>>,
    block: Vec<u8>,
    at: usize,
    done: bool,
}

impl Read for Unpacked {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.at == self.block.len() && !self.done {
            match self.receiver.recv() {
                Ok(block) => (self.block, self.at) = (block?, 0),
                Err(_) => self.block.truncate(self.at),
            }
            self.done = self.at == self.block.len();
        }
        let rest = &self.block[self.at..];
        let count = rest.len().min(buffer.len());
        buffer[..count].copy_from_slice(&rest[..count]);
        self.at += count;
        Ok(count)
    }
}
