package state

// LoadedClients returns the ids of the clients that were taken over.
func (m *Manager) LoadedClients() []uint64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	var ids []uint64
	for id, c := range m.clients {
		if c.loaded {
			ids = append(ids, id)
		}
	}
	return ids
}
