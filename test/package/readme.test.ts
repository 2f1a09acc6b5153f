import { readFile } from 'node:fs/promises'
import path from 'node:path'
import { afterAll, beforeAll, expect, inject, test } from 'vitest'
import { createDatabase, dropDatabase, inDatabase } from '../support/databases'
import { runSteps } from './quick-start'
import { readExample } from './readme'
import { makeProject, type Neighbourhood, openBesideOwnPackages } from './workspace'

const PATIENCE = { timeout: 240_000 }
const DATABASE = `T readme ${process.pid}`

let workspace: Neighbourhood

beforeAll(async () => {
  workspace = await openBesideOwnPackages()
  await createDatabase(inject('serverUrl'), DATABASE)
}, PATIENCE.timeout)

afterAll(async () => {
  await dropDatabase(inject('serverUrl'), DATABASE)
  await workspace?.remove()
})

test('a project with the tarball runs the quick start of README.md, whose types are right', PATIENCE, async () => {
  const readme = readExample(await readFile(path.join(import.meta.dirname, '../../README.md'), 'utf8'))
  expect(Object.keys(readme.files)).not.toEqual([])
  expect(readme.steps.filter(({ output }) => output !== undefined)).not.toEqual([])
  const project = await makeProject(workspace.installation, 'readme', {
    databaseUrl: inDatabase(inject('serverUrl'), DATABASE),
    files: readme.files,
  })
  await runSteps(project, readme)
  expect(await project.run('tsc', ['-p', '.', '--noEmit'])).toEqual({ code: 0, stdout: '', stderr: '' })
})
