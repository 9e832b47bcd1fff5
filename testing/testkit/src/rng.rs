//! A small random number generator (SplitMix64). Its numbers are the same on every machine.

/// Generates pseudo-random numbers from a seed.
#[derive(Clone, Debug)]
pub struct Rng(u64);

impl Rng {
    /// Returns the generator of stream `stream` of a seed. Threads use different streams.
    pub fn new(seed: u64, stream: u64) -> Self {
        let mut rng = Self(seed ^ stream.wrapping_mul(0xd134_2543_de82_ef95));
        rng.next();
        rng
    }

    /// Returns the next 64 bits.
    #[expect(clippy::should_implement_trait, reason = "a generator never ends")]
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Returns a number below `limit`, which must not be 0.
    pub fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit
    }

    /// Returns true in `percent` of 100 cases.
    pub fn chance(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }

    /// Returns a number in `1..=max` that is uniform on a logarithmic scale.
    pub fn log_uniform(&mut self, max: u64) -> u64 {
        let bits = u64::from(64 - max.leading_zeros());
        let limit = 1 << self.below(bits + 1);
        (1 + self.below(limit)).min(max)
    }
}
