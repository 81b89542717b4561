//! Only a provider makes a published view (case 37).

use cluster::view::{Published, RingView};

fn main() {
    let made_up = |view: std::sync::Arc<RingView>| Published::<RingView> { view, by: std::sync::Weak::new() };
    let _ = made_up;
}
