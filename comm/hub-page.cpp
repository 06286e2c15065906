// comm/hub-page.cpp — the status page as it is sent: one file, no outside resources.
#include "comm/hub-status.h"

namespace gt {

const char * const kStatusPage = R"page(<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>ggml-train run</title>
<meta name="viewport" content="width=device-width,initial-scale=1">
<style>
body{font:15px/1.45 system-ui,sans-serif;margin:2em auto;max-width:62em;padding:0 1em;color:#222;background:#fff}
h1{font-size:1.3em;margin:0}h2{font-size:1.05em;margin:1.6em 0 .4em}
table{border-collapse:collapse;width:100%}th,td{text-align:right;padding:.25em .6em;border-bottom:1px solid #ddd}
th:first-child,td:first-child{text-align:left}th{font-weight:600;color:#666}
canvas{width:100%;height:300px;border:1px solid #ddd}
.gone{color:#b00}.ok{color:#080}.dim{color:#888}ul{padding-left:1.2em;margin:.2em 0}
.dot{display:inline-block;width:.7em;height:.7em;border-radius:50%;margin-right:.4em}
@media(prefers-color-scheme:dark){body{color:#ddd;background:#181818}canvas,th,td{border-color:#444}}
</style></head><body>
<h1>ggml-train run</h1><p id="head" class="dim">loading</p>
<h2>Loss</h2><canvas id="loss"></canvas>
<h2>Hosts</h2><table id="hosts"><thead><tr><th>host<th>step<th>loss<th>tokens/s<th>waited<th>sent<th>received<th>refused<th>seen</tr></thead><tbody></tbody></table>
<h2>Faults</h2><ul id="faults"></ul>
<script>
'use strict';
const colors=['#1668c7','#d2691e','#2a8f3c','#a0309f','#b8860b','#008b8b','#c0304a','#555'];
const bytes=n=>n<1e3?n+' B':n<1e6?(n/1e3).toFixed(1)+' kB':n<1e9?(n/1e6).toFixed(1)+' MB':(n/1e9).toFixed(2)+' GB';
const ago=ms=>ms<2e3?'now':ms<12e4?Math.round(ms/1e3)+' s ago':ms<72e5?Math.round(ms/6e4)+' min ago':Math.round(ms/36e5)+' h ago';
const num=(v,d)=>v===undefined?'':v.toFixed(d);
function cell(row,text,cls){const td=document.createElement('td');td.textContent=text;if(cls)td.className=cls;row.append(td);return td}
function draw(hosts){
 const c=document.getElementById('loss'),r=window.devicePixelRatio||1,w=c.width=c.clientWidth*r,h=c.height=c.clientHeight*r,g=c.getContext('2d');
 let x1=1,lo=Infinity,hi=-Infinity;for(const o of hosts)for(const p of o.curve){x1=Math.max(x1,p[0]);lo=Math.min(lo,p[1]);hi=Math.max(hi,p[1])}
 g.clearRect(0,0,w,h);if(lo>hi)return;if(hi-lo<1e-9){hi+=.5;lo-=.5}
 const m=44*r,X=s=>m+(w-m-8*r)*s/x1,Y=v=>8*r+(h-30*r)*(hi-v)/(hi-lo);
 g.font=12*r+'px system-ui';g.fillStyle='#888';g.strokeStyle='#8884';g.lineWidth=r;
 for(let i=0;i<=4;i++){const v=lo+(hi-lo)*i/4;g.fillText(v.toFixed(2),4*r,Y(v)+4*r);g.beginPath();g.moveTo(m,Y(v));g.lineTo(w-8*r,Y(v));g.stroke()}
 g.fillText('step '+x1,w-70*r,h-6*r);
 hosts.forEach((o,i)=>{g.strokeStyle=colors[i%8];g.lineWidth=1.6*r;g.beginPath();o.curve.forEach((p,k)=>k?g.lineTo(X(p[0]),Y(p[1])):g.moveTo(X(p[0]),Y(p[1])));g.stroke()})}
function show(s){
 document.getElementById('head').textContent='hub '+s.version+', up '+ago(s.now-s.started).replace(' ago','')+', '+s.keys+' values, '+bytes(s.bytes)+' on disk';
 draw(s.hosts);
 const body=document.querySelector('#hosts tbody');body.replaceChildren();
 s.hosts.forEach((o,i)=>{const row=document.createElement('tr'),v=o.values,dot=document.createElement('span');dot.className='dot';dot.style.background=colors[i%8];
  cell(row,o.name).prepend(dot);cell(row,num(v.step,0));cell(row,num(v.loss,4));cell(row,num(v.tokens_s,0));cell(row,v.waited_s===undefined?'':v.waited_s.toFixed(2)+' s');
  cell(row,bytes(o.up));cell(row,bytes(o.down));cell(row,o.refused,o.refused?'gone':'');cell(row,ago(s.now-o.seen),s.now-o.seen>6e4?'gone':'ok');body.append(row)});
 const f=document.getElementById('faults');f.replaceChildren();
 if(!s.faults.length){const li=document.createElement('li');li.textContent='none';li.className='dim';f.append(li)}
 for(const e of s.faults.slice().reverse()){const li=document.createElement('li');li.textContent=new Date(e.t).toLocaleTimeString()+'  '+e.text;f.append(li)}
 document.body.dataset.ready='1'}
async function tick(){try{show(await(await fetch('status.json')).json())}catch(e){document.getElementById('head').textContent='the hub does not answer'}setTimeout(tick,2000)}
tick();
</script></body></html>
)page";

}  // namespace gt
