import { afterAll, beforeAll, expect, inject, test } from 'vitest'
import { createDatabase, dropDatabase, inDatabase } from '../support/databases'
import { programPath } from '../support/debian-postgres'
import { makeProject, type Neighbourhood, openBesideOwnPackages, succeed } from './workspace'

const RUNTIMES = {
  bun: ['run', 'main.ts'],
  deno: ['run', '--allow-net', '--allow-env', '--allow-read', '--allow-sys', 'main.ts'],
} as const

const installed = Object.entries(RUNTIMES).map(([name, args]) => ({ name, args, program: programPath(name) }))
const PATIENCE = { timeout: 240_000 }
const databaseOf = (name: string): string => `T ${name} ${process.pid}`

let workspace: Neighbourhood | undefined

beforeAll(async () => {
  if (installed.some(({ program }) => program !== undefined)) workspace = await openBesideOwnPackages()
}, PATIENCE.timeout)
afterAll(async () => {
  for (const { name } of installed) await dropDatabase(inject('serverUrl'), databaseOf(name))
  await workspace?.remove()
})

for (const { name, args, program } of installed) {
  test.skipIf(program === undefined)(
    `${name} runs calls that race, names and tokens (if it is installed)`,
    PATIENCE,
    async () => {
      if (!workspace || program === undefined) throw new TypeError('The test is skipped without it.')
      await createDatabase(inject('serverUrl'), databaseOf(name))
      const databaseUrl = inDatabase(inject('serverUrl'), databaseOf(name))
      const project = await makeProject(workspace.installation, name, { fixture: 'runtimes', databaseUrl })
      const { stdout } = succeed(await project.run(program, args))
      expect(stdout).toBe(`10 [ true, "TEXT_REJECTED" ]
[ "bob", "ada" ] eve
true TEXT_TAKEN
[ false, true ]
`)
    },
  )
}
