import { readdir, readFile } from 'node:fs/promises'
import path from 'node:path'
import { parseSync } from 'vite'

/** What the tests of the architecture look at. */
export interface SourceFile {
  /** Its path without `.ts`. */
  readonly name: string
  readonly layer: string
  /** As they are written; of types too. */
  readonly imports: readonly string[]
  /** String literals and templates, no comments. */
  readonly strings: readonly string[]
}

/** Every TypeScript file below a folder. */
export async function readSource(source: string): Promise<SourceFile[]> {
  const entries = await readdir(source, { recursive: true })
  const paths = entries.map((entry) => entry.replaceAll(path.sep, '/')).filter((entry) => /\.m?ts$/u.test(entry))
  return await Promise.all(paths.sort().map(async (file) => await readSourceFile(source, file)))
}

async function readSourceFile(source: string, file: string): Promise<SourceFile> {
  const imports: string[] = []
  const strings: string[] = []
  const text = await readFile(path.join(source, file), 'utf8')
  visit(parseSync(file, text).program, (node) => {
    const { type, source: from, argument } = node
    const imported = [from, type === 'TSImportType' ? argument : undefined].filter(isNode)
    for (const { value } of imported) if (typeof value === 'string') imports.push(value)
    if (type === 'Literal' && typeof node['value'] === 'string') strings.push(node['value'])
    // The parts of a template, with something where an expression stands.
    if (type === 'TemplateLiteral') strings.push((node['quasis'] as TemplatePart[]).map(cooked).join('…'))
  })
  // The ESM faces are named apart from the files they stand for.
  return { name: file.replace(/\.ts$/u, ''), layer: layerOf(file), imports, strings }
}

/** `index.mts` of a folder belongs to the public names: it only re-exports. */
function layerOf(file: string): string {
  const [folder = '', ...rest] = file.split('/')
  return rest.length > 0 ? folder : folder.replace(/\.m?ts$/u, '')
}

interface TreeNode {
  readonly type: string
  readonly [key: string]: unknown
}

interface TemplatePart {
  readonly value: { readonly cooked: string }
}

const cooked = ({ value }: TemplatePart): string => value.cooked

function isNode(value: unknown): value is TreeNode {
  return typeof value === 'object' && value !== null && 'type' in value && typeof value.type === 'string'
}

function visit(node: unknown, see: (node: TreeNode) => void): void {
  if (Array.isArray(node)) for (const item of node) visit(item, see)
  if (!isNode(node)) return
  see(node)
  for (const value of Object.values(node)) visit(value, see)
}
