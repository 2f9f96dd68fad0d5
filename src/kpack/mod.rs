//! kpack archives, their manifests (`.kpm`), and the marker that leads a binary to them.
