//! Prints how many commands a node commits, beside the raw append+sync rate of the same disk in the same run:
//! `cargo run --release -p keystead-cluster --example commits -- DIRECTORY [WRITERS…]`.

use std::{
    path::PathBuf,
    sync::Arc,
    time::{Duration, Instant, SystemTime},
};

use cluster::bench::{Settings, commits, gets};
use model::time::{Clock, Timestamp};

struct SystemClock(Instant);

impl Clock for SystemClock {
    #[expect(clippy::disallowed_methods, reason = "this is the process's clock")]
    fn wall(&self) -> Timestamp {
        let micros = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_micros();
        Timestamp::from_unix_micros(micros as i64).unwrap_or(Timestamp::MAX)
    }

    fn monotonic(&self) -> Duration {
        self.0.elapsed()
    }
}

#[expect(clippy::disallowed_methods, reason = "this is the process's clock")]
fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let directory = PathBuf::from(arguments.next().ok_or("usage: commits DIRECTORY [WRITERS…]")?);
    let mut writers = arguments.map(|count| count.parse()).collect::<Result<Vec<usize>, _>>()?;
    if writers.is_empty() {
        writers = vec![1, 16, 64, 256];
    }
    let clock: Arc<dyn Clock> = Arc::new(SystemClock(Instant::now()));
    let reads = directory.join("gets");
    println!("   1 reader: {:.0} gets/s", gets(&reads, clock.clone(), Duration::from_secs(1))?);
    std::fs::remove_dir_all(&reads)?;
    for writers in writers {
        let directory = directory.join(writers.to_string());
        std::fs::create_dir_all(&directory)?;
        let settings = Settings { writers, ..Settings::default() };
        println!("{writers:>4} writers: {}", commits(&directory, clock.clone(), &settings)?);
        std::fs::remove_dir_all(&directory)?;
    }
    Ok(())
}
