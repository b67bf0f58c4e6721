# `nix run` and `nix profile install` build curtsy from source with the compiler of nixpkgs.
{
  description = "A forward proxy that makes any client polite to every host";

  inputs.nixpkgs.url = "github:NixOS/nixpkgs/nixos-unstable";

  outputs = { self, nixpkgs }:
    let
      systems = [ "x86_64-linux" "aarch64-linux" "x86_64-darwin" "aarch64-darwin" ];
      forAll = make: nixpkgs.lib.genAttrs systems (system: make nixpkgs.legacyPackages.${system});
    in
    {
      packages = forAll (pkgs: {
        default = pkgs.rustPlatform.buildRustPackage {
          pname = "curtsy";
          version = "0.1.0";
          src = self;
          cargoLock.lockFile = ./Cargo.lock;
          nativeBuildInputs = [ pkgs.cmake pkgs.installShellFiles ];
          # aws-lc-sys runs cmake itself.
          dontUseCmakeConfigure = true;
          # The tests need bash, curl, wget and loopback; scripts/test runs them.
          doCheck = false;
          postInstall = ''
            $out/bin/curtsy man man1
            installManPage man1/*.1
            for shell in bash zsh fish; do
              $out/bin/curtsy completions $shell > curtsy.$shell
            done
            installShellCompletion curtsy.bash curtsy.zsh curtsy.fish
          '';
          meta = {
            description = "A forward proxy that makes any client polite to every host";
            homepage = "https://example.com/curtsy";
            license = with pkgs.lib.licenses; [ mit asl20 ];
            mainProgram = "curtsy";
            platforms = systems;
          };
        };
      });

      devShells = forAll (pkgs: {
        default = pkgs.mkShell { packages = [ pkgs.cargo pkgs.rustc pkgs.clippy pkgs.rustfmt pkgs.cmake pkgs.python3 ]; };
      });
    };
}
