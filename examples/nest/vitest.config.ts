import { defineConfig } from 'vitest/config'

// Vite 8 takes the decorators and their metadata from tsconfig.json.
export default defineConfig({ test: { include: ['test/**/*.test.ts'] } })
