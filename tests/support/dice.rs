//! Chance that can be repeated.

/// A small generator: the moments must be others in every run, and the same again under a printed seed.
pub struct Dice(u64);

impl Dice {
    /// With the seed of the environment, else another one in every run.
    pub fn thrown() -> Self {
        let seed: u64 =
            std::env::var("KAEL_TEST_SEED").ok().and_then(|s| s.parse().ok()).unwrap_or_else(|| {
                std::time::SystemTime::now()
                    .duration_since(std::time::UNIX_EPOCH)
                    .unwrap()
                    .subsec_nanos()
                    .into()
            });
        eprintln!("seed {seed} (KAEL_TEST_SEED={seed} repeats it)");
        Self(seed | 1)
    }

    /// A number below the limit.
    pub fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % limit
    }

    /// True once in so many times.
    pub fn one_in(&mut self, times: u64) -> bool {
        self.below(times) == 0
    }

    /// Another generator, for somebody else.
    pub fn another(&mut self) -> Self {
        Self(self.below(u64::MAX) | 1)
    }
}
