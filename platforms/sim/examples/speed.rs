use holdfast_guest::*; use holdfast_locks::*; use holdfast_sim::*; use holdfast_machine::*;
use std::sync::atomic::{AtomicBool, Ordering::*};
use std::rc::Rc;
struct Img { m: SimMachine, kind: u32, n: u32, words: Rc<Vec<SimWord>>, done: std::cell::Cell<u32> }
impl GuestImage for Img {
  fn boot(&self, cpu: CpuId) -> ! {
    let c = self.m.cpu();
    if cpu.0 == 0 { self.m.report(Report::Begin); }
    match self.kind {
      0 => for i in 0..self.n { c.fetch_add(&self.words[cpu.0 as usize], i, Relaxed); }
      1 => for _ in 0..self.n { // contended ticket
          let w=&self.words[0];
          let t = c.fetch_add(w, 0x10000, Acquire) >> 16;
          c.contention_begin(w);
          let _ = c.wait_until(w, Budget::UNBOUNDED, Acquire, |v| v & 0xffff == t);
          c.contention_end(w);
          c.lock_acquired(w); c.compute(200); c.lock_released(w);
          c.store_low16(w, (t+1) as u16, Release);
          c.compute(500);
      }
      _ => for i in 0..self.n { c.compute(300); c.fetch_add(&self.words[cpu.0 as usize], i, Relaxed); c.lock_acquired(&self.words[cpu.0 as usize]); c.compute(100); c.lock_released(&self.words[cpu.0 as usize]); c.store(&self.words[cpu.0 as usize], 0, Release); }
    }
    self.done.set(self.done.get()+1);
    if self.done.get()==self.m.cpus() { self.m.report(Report::Done{operations: None}); }
    loop { c.compute(1_000_000_000_000); }
  }
  fn interrupt(&self, _: u8) {}
}
fn main() {
  let a: Vec<String> = std::env::args().collect();
  let kind: u32 = a[1].parse().unwrap(); let p: u32 = a[2].parse().unwrap(); let n: u32 = a[3].parse().unwrap();
  let cy = |c: u64| Picos(c*341);
  let costs = Costs { load_hit: cy(4), store: cy(1), rmw_hit: cy(20), fence: cy(20), pause: cy(10), transfer_core: cy(20), transfer_socket: cy(110), transfer_cross: cy(300), read_occupancy: cy(30), exit_hardware: cy(1000), ..Default::default() };
  let machine = Profile { name: "t".into(), topology: Topology{sockets:1, cores: p, threads:1}, frequency_hz: 2_930_000_000, costs, ple: None };
  let config = Config { machine, host: Default::default(), vms: vec![Vm{name:"g".into(), vcpus: p, affinity: vec![], host: Default::default(), boot: Default::default(), measured: true}], tasks: vec![], seed: 1, execute_spins: a.get(4).is_some(), limit_ns: u64::MAX };
  let t = std::time::Instant::now();
  let out = run_images(&config, &AtomicBool::new(false), |_, m| Box::new(Img{ m, kind, n, words: Rc::new((0..p).map(|_| Word::new(0)).collect()), done: Default::default() })).unwrap();
  let e = t.elapsed();
  println!("{:?} ops {} -> {:.1} M ops/s; switches {} virtual {} ms; hash {:x}; {:?}", e, out.engine["operations"], out.engine["operations"] as f64/e.as_secs_f64()/1e6, out.engine["switches"], out.end_ns/1_000_000, out.history_hash, out.engine);
  println!("{:?}", out.vms[0].lost_time_ps);
}
