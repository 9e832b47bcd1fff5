//! Prints the figures as tables or as JSON.

use rangelock::Mode;

pub struct Report {
    json: bool,
    columns: Vec<&'static str>,
    rows: Vec<Row>,
}

struct Row {
    pattern: &'static str,
    mode: Mode,
    threads: u64,
    nanoseconds: Vec<f64>,
}

impl Report {
    pub fn new(json: bool) -> Self {
        Self { json, columns: Vec::new(), rows: Vec::new() }
    }

    /// Prints a figure of one thread.
    pub fn single(&mut self, name: &str, nanoseconds: f64) {
        if self.json {
            println!(r#"{{"one_thread":"{name}","ns":{nanoseconds:.2}}}"#);
        } else {
            println!("{name:42}{nanoseconds:9.1} ns");
        }
    }

    pub fn columns(&mut self, names: impl Iterator<Item = &'static str>) {
        self.columns = names.collect();
        if !self.json {
            print!("\n{:42}", "ns of all threads together per operation");
            self.columns.iter().for_each(|name| print!("{name:>12}"));
            println!();
        }
    }

    pub fn row(&mut self, pattern: &'static str, mode: Mode, threads: u64, nanoseconds: &[f64]) {
        if self.json {
            for (lock, ns) in self.columns.iter().zip(nanoseconds) {
                println!(
                    r#"{{"pattern":"{pattern}","mode":"{mode:?}","threads":{threads},"lock":"{lock}","ns":{ns:.2}}}"#
                );
            }
        } else {
            print!("{:42}", format!("{pattern}, {mode:?}, {threads} threads"));
            nanoseconds.iter().for_each(|ns| print!("{ns:12.1}"));
            println!();
        }
        self.rows.push(Row { pattern, mode, threads, nanoseconds: nanoseconds.to_vec() });
    }

    /// Prints, for each row, the throughput of rangelock divided by that of each other lock, and by
    /// its own with one thread.
    pub fn ratios(&self) {
        if self.json {
            return;
        }
        print!("\n{:42}", "throughput of rangelock divided by:");
        self.columns.iter().for_each(|name| print!("{name:>12}"));
        println!("{:>12}", "1 thread");
        let mut of_one = 0.0;
        for Row { pattern, mode, threads, nanoseconds } in &self.rows {
            let own = nanoseconds.last().copied().unwrap_or_default();
            if *threads == 1 {
                of_one = own;
            }
            print!("{:42}", format!("{pattern}, {mode:?}, {threads} threads"));
            nanoseconds.iter().chain([&of_one]).for_each(|ns| print!("{:12.2}", ns / own));
            println!();
        }
    }
}
