import type { DataSource } from 'typeorm'
import { vi } from 'vitest'

/** The statements that TypeORM's logger was told of meanwhile. */
export async function queriesOf(dataSource: DataSource, run: () => Promise<unknown>): Promise<string[]> {
  const logged = vi.spyOn(dataSource.logger, 'logQuery')
  try {
    await run()
    return logged.mock.calls.map(([sql]) => sql)
  } finally {
    logged.mockRestore()
  }
}
