# Homebrew formula, for macOS and Linux. A release fills in the sums (scripts/release packages); put the result into a tap as
# Formula/curtsy.rb.
class Curtsy < Formula
  desc "Forward proxy that makes any client polite to every host"
  homepage "https://example.com/curtsy"
  version "0.1.0"
  license any_of: ["MIT", "Apache-2.0"]

  on_macos do
    on_intel do
      url "https://example.com/curtsy/releases/download/v0.1.0/curtsy-0.1.0-x86_64-apple-darwin.tar.gz"
      sha256 "SHA256_x86_64_apple_darwin"
    end
    on_arm do
      url "https://example.com/curtsy/releases/download/v0.1.0/curtsy-0.1.0-aarch64-apple-darwin.tar.gz"
      sha256 "SHA256_aarch64_apple_darwin"
    end
  end
  on_linux do
    on_intel do
      url "https://example.com/curtsy/releases/download/v0.1.0/curtsy-0.1.0-x86_64-unknown-linux-musl.tar.gz"
      sha256 "SHA256_x86_64_unknown_linux_musl"
    end
    on_arm do
      url "https://example.com/curtsy/releases/download/v0.1.0/curtsy-0.1.0-aarch64-unknown-linux-musl.tar.gz"
      sha256 "SHA256_aarch64_unknown_linux_musl"
    end
  end

  def install
    bin.install "curtsy"
    man1.install Dir["man1/*.1"]
    bash_completion.install "completions/curtsy.bash" => "curtsy"
    zsh_completion.install "completions/_curtsy"
    fish_completion.install "completions/curtsy.fish"
    pkgshare.install "config.toml", "curtsy.schema.json"
  end

  service do
    run [opt_bin/"curtsy", "run"]
    keep_alive true
  end

  test do
    assert_match version.to_s, shell_output("#{bin}/curtsy --version")
    system bin/"curtsy", "config", "check"
  end
end
