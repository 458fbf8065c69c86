//! What the documents show is what is compiled.

#[test]
fn the_readme_shows_the_example() {
    let shown = include_str!("../../examples/instead_of_std/counts.rs");
    let readme = include_str!("../../README.md");
    assert!(
        readme.contains(&format!("```rust\n{shown}```\n")),
        "the README of the crate does not show examples/instead_of_std/counts.rs"
    );
}
