//! Arguments in, exit code out.

fn main() {
    println!("curtsy {}", env!("CARGO_PKG_VERSION"));
}
