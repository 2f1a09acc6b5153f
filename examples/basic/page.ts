import { Column, Entity, PrimaryGeneratedColumn } from 'typeorm'
import { UniqueText, UniqueTextEntity } from 'typeorm-unique-text'
import { url } from 'typeorm-unique-text/normalizers'

@Entity()
export class Page extends UniqueTextEntity {
  @PrimaryGeneratedColumn('identity', { type: 'integer' }) id!: number
  @UniqueText({ normalize: url() }) url!: string
  @Column({ type: 'text', nullable: true }) title!: string | null
}
