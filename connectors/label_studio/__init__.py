"""Label Studio: pull and push through label-studio-sdk."""
