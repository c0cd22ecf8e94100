package main

import "context"

func (b *bench) kill(ctx context.Context) error { return nil }
