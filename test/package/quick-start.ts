import { readdir } from 'node:fs/promises'
import path from 'node:path'
import { expect } from 'vitest'
import type { Example } from './readme'
import { type Project, succeed } from './workspace'

/** How one kind of project calls the commands. */
export interface QuickStart {
  /** The file that exports the DataSource. */
  readonly dataSource: string
  readonly app: string
  /** Whether generated migrations are ES modules. */
  readonly esm: boolean
}

/** What every version of the application prints at its first run. */
const PRINTED = `true false true {"id":1,"url":"http://example.com/b","title":"B"}
true TEXT_REJECTED
true
false
https://example.com/?q#f null
https://example.com/?a=1&b=2
`

/** TypeORM's own command line before and after the application; nothing of ours stands between. */
export async function runQuickStart(project: Project, { dataSource, app, esm }: QuickStart): Promise<void> {
  const typeorm = async (command: string, ...args: string[]) =>
    await project.run('typeorm', [command, '-d', dataSource, ...args])
  const format = esm ? ['--outputJs', '--esm'] : ['--outputJs']

  succeed(await typeorm('migration:generate', ...format, 'migrations/Pages'))
  expect(await readdir(path.join(project.folder, 'migrations'))).toEqual([expect.stringMatching(/^\d+-Pages\.js$/)])
  expect(succeed(await typeorm('migration:run')).stdout).toMatch(/Pages\d+ has been executed successfully/)

  const second = await typeorm('migration:generate', ...format, 'migrations/Nothing')
  expect(second).toMatchObject({ code: 1 })
  expect(second.stdout + second.stderr).toContain('No changes in database schema were found')

  expect(succeed(await project.run('node', [app])).stdout).toBe(PRINTED)
  expect(succeed(await typeorm('migration:revert')).stdout).toMatch(/Pages\d+ has been reverted successfully/)
}

/** Runs the commands of a document, each of which prints what stands after it. */
export async function runSteps(project: Project, { steps }: Example): Promise<void> {
  for (const { command, output } of steps) {
    const { stdout } = succeed(await project.run('bash', ['-euo', 'pipefail', '-c', command]))
    expect(stdout.trim()).toBe(output ?? stdout.trim())
  }
}
