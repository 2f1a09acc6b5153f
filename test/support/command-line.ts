import { execFile } from 'node:child_process'
import { mkdtemp, readdir, realpath, rm, symlink, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import path from 'node:path'
import { build } from 'esbuild'

const checkout = path.resolve(import.meta.dirname, '../..')

/** A folder with DataSources and migrations, on which the unmodified command line of TypeORM works. */
export interface CommandLine {
  readonly folder: string
  /** @param text of a CommonJS module; `src` there is the absolute path of this repository's sources, compiled */
  write(file: string, text: string): Promise<void>
  /** @returns what the command printed, and the code with which it ended */
  typeorm(...args: readonly string[]): Promise<{ readonly code: number; readonly output: string }>
  remove(): Promise<void>
}

export async function openCommandLine(databaseUrl: string): Promise<CommandLine> {
  const folder = await realpath(await mkdtemp(path.join(tmpdir(), 'unique-text-migrations-')))
  await symlink(path.join(checkout, 'node_modules'), path.join(folder, 'node_modules'))
  const compiled = path.join(folder, 'src')
  await compileSources(compiled)
  return {
    folder,
    write: async (file, text) => {
      await writeFile(path.join(folder, file), `const src = ${JSON.stringify(compiled)}\n${text}`)
    },
    typeorm: async (...args) => await run(folder, databaseUrl, args),
    remove: async () => {
      await rm(folder, { recursive: true })
    },
  }
}

/** Each command is a process: compiled once, the sources load in a quarter of the time that tsx needs. */
async function compileSources(outdir: string): Promise<void> {
  const outbase = path.join(checkout, 'src')
  const files = await readdir(outbase, { recursive: true })
  const entryPoints = files.filter((file) => file.endsWith('.ts')).map((file) => path.join(outbase, file))
  const tsconfig = path.join(checkout, 'tsconfig.json')
  await build({ entryPoints, outbase, outdir, tsconfig, format: 'cjs', platform: 'node', target: 'node20' })
}

async function run(
  folder: string,
  databaseUrl: string,
  args: readonly string[],
): Promise<{ code: number; output: string }> {
  const all = [path.join(checkout, 'node_modules/typeorm/cli.js'), ...args]
  const env = { PATH: process.env['PATH'], DATABASE_URL: databaseUrl, FOLDER: folder, NO_COLOR: '1' }
  return await new Promise((resolve, reject) => {
    execFile(process.execPath, all, { cwd: checkout, env }, (error, stdout, stderr) => {
      const code = error === null ? 0 : error.code
      if (typeof code === 'number') resolve({ code, output: stdout + stderr })
      else reject(new Error(`typeorm ${args.join(' ')} ended without an exit code.`, { cause: error }))
    })
  })
}
