"""How scores and values of networks are made of latent standard normals, law by law."""
