package dev

import "context"

func (s *Service) demonstrate(ctx context.Context) error { return nil }
