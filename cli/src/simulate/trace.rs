//! Requests: lengths and arrival times.

use fastrand::Rng;

/// Mean lengths of a data set, and how widely they vary.
#[derive(Clone, Copy, Debug)]
pub struct Lengths {
    /// Mean prompt in tokens.
    pub prompt: f64,
    /// Mean output in tokens.
    pub output: f64,
    /// Standard deviations of the logarithms.
    pub sigma: [f64; 2],
}

/// One request.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Request {
    /// Arrival in units of the mean time between two requests.
    pub arrival: f64,
    /// Tokens of the prompt, at least 1.
    pub prompt: usize,
    /// Tokens to generate, at least 1.
    pub output: usize,
}

impl Request {
    /// Tokens of prompt and output together.
    pub fn total(&self) -> usize {
        self.prompt + self.output
    }
}

/// `count` requests with Poisson arrivals; prompt and output are log-normal, drawn again where both
/// together exceed `max_len`, and their means are those of `lengths` after that.
pub fn requests(lengths: &Lengths, max_len: usize, count: usize, seed: u64) -> Vec<Request> {
    let mut mu = [lengths.prompt.ln(), lengths.output.ln()];
    // The same normal numbers in every round, so that the means move with mu alone.
    for _ in 0..20 {
        let drawn = draw(mu, lengths.sigma, max_len, count, seed);
        let mean = |length: fn(&Request) -> usize| {
            drawn
                .iter()
                .map(|request| length(request) as f64)
                .sum::<f64>()
                / count.max(1) as f64
        };
        mu[0] += (lengths.prompt / mean(|r| r.prompt)).ln().clamp(-1.0, 1.0);
        mu[1] += (lengths.output / mean(|r| r.output)).ln().clamp(-1.0, 1.0);
    }
    draw(mu, lengths.sigma, max_len, count, seed)
}

fn draw(mu: [f64; 2], sigma: [f64; 2], max_len: usize, count: usize, seed: u64) -> Vec<Request> {
    let mut arrival = 0.0;
    let request = |i| {
        let mut rng = Rng::with_seed(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ i as u64);
        arrival -= (1.0 - rng.f64()).ln();
        loop {
            let [a, b] = normal_pair(&mut rng);
            let prompt = length(mu[0] + sigma[0] * a);
            let output = length(mu[1] + sigma[1] * b);
            if prompt.saturating_add(output) <= max_len {
                return Request {
                    arrival,
                    prompt,
                    output,
                };
            }
        }
    };
    (0..count).map(request).collect()
}

fn length(logarithm: f64) -> usize {
    (logarithm.exp().round() as usize).max(1)
}

/// Two independent normal numbers (Box and Muller, 1958).
fn normal_pair(rng: &mut Rng) -> [f64; 2] {
    let radius = (-2.0 * (1.0 - rng.f64()).ln()).sqrt();
    let angle = std::f64::consts::TAU * rng.f64();
    [radius * angle.cos(), radius * angle.sin()]
}

#[cfg(test)]
mod tests {
    use super::*;

    const LENGTHS: Lengths = Lengths {
        prompt: 161.0,
        output: 338.0,
        sigma: [1.2, 0.9],
    };

    #[test]
    fn means_are_those_asked_for_after_truncation() {
        let drawn = requests(&LENGTHS, 2048, 4000, 1);
        let mean = |length: fn(&Request) -> usize| {
            drawn.iter().map(|r| length(r) as f64).sum::<f64>() / drawn.len() as f64
        };
        let [prompt, output] = [mean(|r| r.prompt), mean(|r| r.output)];
        assert!((prompt / 161.0 - 1.0).abs() < 0.02, "{prompt}");
        assert!((output / 338.0 - 1.0).abs() < 0.02, "{output}");
        assert!(
            drawn
                .iter()
                .all(|r| r.total() <= 2048 && r.prompt > 0 && r.output > 0)
        );
    }

    #[test]
    fn arrivals_are_one_apart_on_average_and_vary_as_much() {
        let drawn = requests(&LENGTHS, 2048, 4000, 2);
        let gaps: Vec<f64> = drawn
            .windows(2)
            .map(|w| w[1].arrival - w[0].arrival)
            .collect();
        let mean = gaps.iter().sum::<f64>() / gaps.len() as f64;
        let variance = gaps.iter().map(|g| (g - mean).powi(2)).sum::<f64>() / gaps.len() as f64;
        // Both are 1 for a Poisson process; 4000 gaps leave errors of about 0.016 and 0.045.
        assert!(
            (mean - 1.0).abs() < 0.08 && (variance - 1.0).abs() < 0.22,
            "{mean} {variance}"
        );
    }

    #[test]
    fn seeds_decide() {
        let drawn = |seed| requests(&LENGTHS, 2048, 50, seed);
        assert_eq!(drawn(3), drawn(3));
        assert_ne!(drawn(3), drawn(4));
    }
}
