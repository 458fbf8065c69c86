//! What the documents show is what is compiled.

#[test]
fn the_readme_shows_the_example() {
    let example = include_str!("../../examples/instead_of_std.rs");
    let (_, shown) = example.split_once("\n\n").expect("a header, then code");
    let readme = include_str!("../../../README.md");
    assert!(
        readme.contains(&format!("```rust\n{shown}```\n")),
        "README.md does not show examples/instead_of_std.rs"
    );
}
